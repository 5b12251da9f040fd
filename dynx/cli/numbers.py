"""Parse numbers on the command line; error messages say what kind of number the option takes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def number(expected: str, accepts: Callable[[float], bool]) -> Callable[[str], float]:
    """Return the `type` of an argparse option that takes finite numbers for which `accepts` is true.

    `expected` names such numbers in the error: with "a number of seconds", the error is "x is not a number of seconds".
    """

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and accepts(value)):
            raise argparse.ArgumentTypeError(f"{text} is not {expected}")
        return value

    return parse
