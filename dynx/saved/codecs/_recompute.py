"""Store nothing: recompute the tensor in backward."""

from __future__ import annotations

from typing import Any

import torch

from dynx.errors import UsageError
from dynx.saved._codec import Codec

NAME = "recompute"


def recompute() -> Codec:
    """Store nothing: backward recomputes the tensor from other saved tensors and inputs of the graph.

    The codec applies only in compiled graphs, and only if no operator of the recomputation draws random numbers or has side
    effects. If another rule rounds a stored tensor that the recomputation reads, the recomputed tensor is inexact too.

    Example:
        >>> from dynx.saved import codecs
        >>> codecs.recompute().name
        'recompute'
    """
    return Codec(NAME, _no_values, _no_values, "any", is_exact=True, code="saved.codecs.recompute()")


def _no_values(value: Any) -> torch.Tensor:
    raise UsageError(
        "recompute() cannot pack a tensor: in compiled graphs it replaces the tensor by operators, without packing\n"
        "  pass saved.rule(recompute()) to saved.hooks, and call a compiled function"
    )
