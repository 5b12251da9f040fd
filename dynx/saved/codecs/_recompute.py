"""Store nothing: compute the tensor again in backward."""

from __future__ import annotations

from typing import Any

import torch

from dynx.errors import UsageError
from dynx.saved._codec import Codec

NAME = "recompute"


def recompute() -> Codec:
    """Store nothing: backward computes the tensor again from other saved tensors and from inputs of the graph.

    Applies where those suffice without random numbers; only in compiled graphs, since eager code has no graph to compute from.
    Where another rule stores one of these tensors with less precision, the computed tensor has its error too.

    Example:
        >>> from dynx.saved import codecs
        >>> codecs.recompute().name
        'recompute'
    """
    return Codec(NAME, _no_values, _no_values, "any", is_exact=True, code="saved.codecs.recompute()")


def _no_values(value: Any) -> torch.Tensor:
    raise UsageError(
        "recompute() packs no values: it is a rule for compiled graphs\n  pass it to saved.rule, and the rule to saved.hooks"
    )
