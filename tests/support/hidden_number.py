"""A number that no search finds, since its name is computed."""

from __future__ import annotations


class Hidden:
    factor = 1.0


def hidden_factor():
    return getattr(Hidden, "".join(("fac", "tor")))
