"""Rule DX701: a saved tensor that backward reads as a mask is stored with less precision, and small elements become 0."""

from __future__ import annotations

from dynx.advice.rule import Loss, LossRule
from dynx.records.saved import SavedGraph


def _loss(graph: SavedGraph) -> Loss | None:
    masks = [tensor for tensor in graph.rounded if tensor.reads_as_mask and not tensor.keeps_mask]
    if not masks:
        return None
    return Loss(
        masks,
        f"{masks[0].name} is stored as {masks[0].codec}, and backward reads which elements are 0:"
        " small ones become 0, and their gradient is lost",
        "store it as bf16, or leave it out with line= or name=; where backward reads nothing else of it,"
        " rule(codecs.bits(), mask_only=True) before this one stores it exactly",
    )


RULE = LossRule(id="DX701", title="a mask is stored with less precision", loss=_loss)
