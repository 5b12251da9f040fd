"""Rule DX703: backward recomputes a tensor from a saved tensor that is stored with less precision."""

from __future__ import annotations

from dynx.advice.rule import Loss, LossRule
from dynx.records.saved import SavedGraph


def _loss(graph: SavedGraph) -> Loss | None:
    by_name = {tensor.name: tensor for tensor in graph.rounded}
    computed = [tensor for tensor in graph.tensors if any(source in by_name for source in tensor.computed_from)]
    if not computed:
        return None
    source = next(by_name[name] for name in computed[0].computed_from if name in by_name)
    return Loss(
        computed,
        f"{computed[0].name} is computed again from {source.name}, which is stored as {source.codec}: it has its error",
        f"store {source.name} exactly, with no rule of less precision on it",
    )


RULE = LossRule(id="DX703", title="a tensor is computed again from a rounded one", loss=_loss)
