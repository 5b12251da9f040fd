"""Show the side effects of a compiled function, such as changes of attributes, as a block (title, table, notes)."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice import spoken
from dynx.records.effects import Effect, FrameEffects
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_frame(frame: FrameEffects) -> Iterator[Block]:
    """Yield a block with the side effects of a frame, in the order in which its compiled code repeats them."""
    lost = sum(effect.is_lost for effect in frame.effects)
    title = f"{frame.location.function} changes {words.plural(len(frame.effects), 'value')}"
    rows = [
        (spoken(effect.source), effect.before, effect.after, _repeated(effect), words.line(effect.location or frame.location))
        for effect in frame.effects
    ]
    remark = f"[{frame.id}]" + (f", {lost} lost in compiled code" if lost else "")
    notes = () if frame.replays else ("torch._dynamo.config.replay_side_effects is off: no mutation is repeated",)
    yield Block(title, remark, ("what", "before", "then", "in compiled code", "where"), rows, notes)


def _repeated(effect: Effect) -> str:
    if not effect.is_lost:
        return "repeated"
    return "LOST: dropped" if effect.announced else "LOST: not noted"
