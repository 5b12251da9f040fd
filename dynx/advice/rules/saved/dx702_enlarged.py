"""Rule DX702: a saved tensor is stored with less precision, and backward enlarges its error."""

from __future__ import annotations

from dynx.advice.rule import Loss, LossRule
from dynx.records.saved import SavedGraph


def _loss(graph: SavedGraph) -> Loss | None:
    sources = [tensor for tensor in graph.rounded if tensor.enlarged_by]
    if not sources:
        return None
    ops = ", ".join(sources[0].enlarged_by[:3])
    return Loss(
        sources,
        f"{sources[0].name} is stored as {sources[0].codec}, and backward computes {ops} again from the rounded values",
        "measure with saved.grad_error; a more precise codec for this line, or none",
    )


RULE = LossRule(id="DX702", title="backward enlarges the error of a rounded tensor", loss=_loss)
