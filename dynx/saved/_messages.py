"""Warn at compile time if the rounding of a codec can cause much larger errors in the gradients."""

from __future__ import annotations

import warnings

from dynx._reading.user_location import user_stacklevel
from dynx.advice import losses
from dynx.advice.rule import Loss
from dynx.errors import DynxWarning
from dynx.records.saved import SavedGraph


def warn_of_losses(graph: SavedGraph) -> None:
    """Warn about saved tensors that a codec rounds, if backward reads them as masks or recomputes other tensors from them."""
    for rule, loss in losses(graph):
        warnings.warn(_text(rule, loss), DynxWarning, stacklevel=user_stacklevel())


def _text(rule: str, loss: Loss) -> str:
    where = f"{loss.location}: " if loss.location is not None else ""
    others = f" (and {len(loss.tensors) - 1} more)" if len(loss.tensors) > 1 else ""
    return f"{where}{loss.title}{others} ({rule})\n  {loss.advice}"
