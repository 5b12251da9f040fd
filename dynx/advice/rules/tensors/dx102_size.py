"""Rule DX102: recompiles because the size of a tensor changes."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.fixes import CONFIG, isolated, mark_of, marks, not_static
from dynx.advice.facts.names import SIZE, spoken
from dynx.advice.facts.reasons import is_size_in_shape
from dynx.advice.facts.shared_advice import instances_advice
from dynx.advice.facts.sizes import is_compared_with_parameter, is_size_one, size_advice
from dynx.advice.rule import Advice, Cause, RecompileRule, one_of
from dynx.records.finding import Alternative
from dynx.records.fix import Fix

_DUCK = "torch.fx.experimental._config.use_duck_shape = False"


def _advice(cause: Cause) -> Advice:
    if "duck sizing" in cause.first.text:
        return one_of(
            "these sizes were equal in the first call: warm up with sizes that differ",
            Alternative(_DUCK, Fix("statement", _DUCK).name),
        )
    is_of_self = spoken(cause.first.source).startswith("self.")
    if cause.first.other_instance is not None and (cause.fixed is not None or is_of_self):
        return instances_advice(cause)  # sizes of the parameters, buffers or layers of each instance
    return size_advice(cause)


def _fixes(cause: Cause) -> Iterator[Fix]:
    reason = cause.first
    match = SIZE.match(reason.source)
    if is_size_one(reason):
        return  # compiles on its own, whatever is marked
    if "duck sizing" in reason.text:
        yield Fix("statement", _DUCK)
    is_of_parameter = match is not None and ("_parameters[" in match["tensor"] or "parameter" in reason.text)
    if is_of_parameter or (cause.fixed is not None and is_compared_with_parameter(cause.fixed)):
        yield Fix("statement", f"{CONFIG}.force_parameter_static_shapes = False")
    elif (own := mark_of(cause)) is not None:
        yield from marks(cause, own)
    yield from not_static(cause)
    yield Fix("option", "dynamic=True")
    yield from isolated(cause)


RULE = RecompileRule(
    id="DX102",
    title="a tensor's size changes",
    applies=is_size_in_shape,
    advice=_advice,
    fixes=_fixes,
    is_size=True,
    is_common=lambda reason: reason.kind == "size",
)
