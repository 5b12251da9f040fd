"""Rule DX803: compiled code repeats no mutation, because `torch._dynamo.config.replay_side_effects` is off."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.effects import change
from dynx.advice.facts.names import spoken
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterator[Finding]:
    for frame in run.side_effects:
        lost = [effect for effect in frame.effects if effect.is_lost][:5]
        if lost and not frame.replays:
            names = ", ".join(dict.fromkeys(spoken(effect.source) for effect in lost))
            yield Finding(
                RULE.id,
                f"{frame.location.function} does not repeat its mutations in compiled code: {names}",
                frame.location,
                0.0,
                tuple(map(change, lost)),
                "set torch._dynamo.config.replay_side_effects = True, which is torch's default",
                wrong=True,
            )


RULE = RunRule(id="DX803", title="no mutation is repeated: replay_side_effects is off", find=_find)
