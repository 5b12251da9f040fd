"""`plan`: rules that fit a budget at the least error of the gradients."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from dynx._trace.user_location import call_site
from dynx.errors import BadCodec, DynxWarning, UsageError
from dynx.records.saved import SavedTensor
from dynx.records.saved_report import SavedPlan, TriedRule
from dynx.saved import codecs as known
from dynx.saved._codec import Codec
from dynx.saved._hooks import hooks
from dynx.saved._measure.grad_error import compared
from dynx.saved._measure.trial import Program, Trial
from dynx.saved._rules import Rule, rule

_SMALL = 0.01  # of the bytes: a group of tensors that takes less stays as it is
# the same saved tensors as inductor, without its compile time
_QUICK = {"inductor": "aot_eager_decomp_partition"}


class Choice(NamedTuple):
    """A rule, what it frees, and the error that it causes by itself."""

    group: Group
    rule: Rule
    code: str
    freed: int
    error: float


def plan(
    fn: Any,
    /,
    *args: Any,
    budget: str | int = "60%",
    codecs: Sequence[Codec] | None = None,
    backend: Any = None,
    **kwargs: Any,
) -> SavedPlan:
    """Find rules with which the activations fit a budget, at the least error of the gradients.

    Every line, and every module that no code of yours calls, whose activations take at least 1 % of the bytes is tried with
    each codec that takes them, one compilation each. Rules are then chosen greedily, those with the least squared error for
    each byte that they free first, and all of them are measured together.

    Compiling with inductor is replaced by the backend `aot_eager_decomp_partition`, which saves the same tensors and compiles
    faster.

    Args:
        fn: A function that returns a loss, or a module; compiled or not. A compiled one keeps its backend.
        *args: Arguments of the call.
        budget: Bytes of the activations as they are stored: a number, or a share of what they take without rules, as `"60%"`.
        codecs: What is tried: without, bits, bf16, int8, fp8 and int4. `recompute` and `offload` have no error either, but take
            time, which this function does not measure.
        backend: A backend of torch.compile to use instead; for a function that is not compiled, inductor otherwise.
        **kwargs: Keyword arguments of the call.

    Returns:
        A `SavedPlan` with the rules as code to paste, their bytes and error, and everything that was tried.

    Raises:
        UsageError: `fn` is not callable or returns nothing that requires a gradient; the budget is neither; a codec is none.

    Example:
        >>> import torch
        >>> from dynx import saved
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
        >>> plan = saved.plan(model, torch.randn(32, 64), budget="60%", backend="aot_eager")
        >>> plan.fits, plan.relative < 0.01
        (True, True)
    """
    program = Program(fn, args, kwargs, backend)
    program.backend = _QUICK.get(getattr(program.backend, "compiler_name", program.backend), program.backend)
    without = program.run(hooks())  # not None: hooks save tensors instead of views of them, which other lines may have made
    tensors = [tensor for graph in without.graphs for tensor in graph.activations]
    total = sum(tensor.bytes for tensor in tensors)
    allowed = _bytes_of(budget, total)
    candidates = _checked(codecs)
    choices = list(_tried(program, without, tensors, candidates)) if allowed < total else []
    chosen = _greedy(choices, total - allowed)
    final = program.run(hooks(*(choice.rule for choice in chosen), validate=False)) if chosen else without
    error = compared(final, without)
    saved_bytes = sum(graph.saved_bytes for graph in final.graphs)
    return SavedPlan(
        _code(chosen),
        tuple(str(choice.rule) for choice in chosen),
        total,
        saved_bytes,
        allowed,
        error.relative,
        error.cosine,
        tuple(TriedRule(str(choice.rule), choice.freed, choice.error) for choice in choices),
        tuple(_notes(without, chosen, saved_bytes, allowed)),
    )


def _bytes_of(budget: Any, total: int) -> int:
    share = budget.removesuffix("%") if isinstance(budget, str) and budget.endswith("%") else None
    try:
        allowed = round(total * float(share) / 100) if share is not None else budget
    except ValueError:
        allowed = None
    if type(allowed) is not int or allowed < 0:
        raise UsageError(f'budget={budget!r} is no amount of memory\n  pass a number of bytes, or a share such as "60%"')
    return allowed


def _checked(tried: Sequence[Codec] | None) -> tuple[Codec, ...]:
    if tried is None:
        return known.bits(), known.bf16(), known.int8(), known.fp8(), known.int4()
    for codec in tried:
        if not isinstance(codec, Codec):
            raise UsageError(f"{codec!r} is no codec\n  pass those of dynx.saved.codecs, such as saved.codecs.fp8()")
    return tuple(tried)


class Group(NamedTuple):
    """Saved tensors that one rule is for: those of one line or module, masks apart from others."""

    option: Literal["line", "module"]
    value: str
    is_mask: bool

    @property
    def code(self) -> str:
        """The option of the rule as code; of a path its last folder and name suffice."""
        return f'line="{"/".join(self.value.split("/")[-2:])}"' if self.option == "line" else f'module=r"{self.value}"'


def _tried(program: Program, without: Trial, tensors: Sequence[SavedTensor], candidates: Sequence[Codec]) -> Iterable[Choice]:
    """Try each codec on the tensors of each group; yield what it frees and the error that it causes."""
    total = sum(tensor.bytes for tensor in tensors)
    for group, members in _grouped(tensors).items():
        if sum(tensor.bytes for tensor in members) < total * _SMALL:
            continue
        for codec in candidates:
            if group.is_mask is not (codec.dtypes == "bool") and codec.dtypes != "any":
                continue
            tried = rule(codec, line=group.value) if group.option == "line" else rule(codec, module=group.value)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DynxWarning)  # of errors that are measured here
                    trial = program.run(hooks(tried))
            except BadCodec:
                continue  # it does not take a tensor of this group
            freed = sum(graph.bytes - graph.saved_bytes for graph in trial.graphs)
            if freed > 0:
                code = f"saved.rule({codec.code or codec.name}, {group.code})"
                yield Choice(group, tried, code, freed, compared(trial, without).relative)


def _grouped(tensors: Sequence[SavedTensor]) -> dict[Group, list[SavedTensor]]:
    """Group tensors by the line that computed them, the largest group first.

    Modules of torch that no code of the user calls have no line of their own, only that of the call: there by module.
    """
    groups: dict[Group, list[SavedTensor]] = {}
    site = call_site()
    for tensor in tensors:
        is_mask, location = tensor.dtype == "bool", tensor.location
        if location is not None and location != site:
            groups.setdefault(Group("line", f"{location.file}:{location.line}", is_mask), []).append(tensor)
        elif tensor.module is not None:
            groups.setdefault(Group("module", "^" + re.escape(tensor.module).replace(r"\ ", " ") + "$", is_mask), []).append(
                tensor
            )
    return dict(sorted(groups.items(), key=lambda item: -sum(tensor.bytes for tensor in item[1])))


def _greedy(choices: Sequence[Choice], needed: int) -> list[Choice]:
    """Choose one rule for each line until enough is freed: each time the change with the least squared error per byte."""
    chosen: dict[Group, Choice] = {}
    while sum(choice.freed for choice in chosen.values()) < needed:
        best: tuple[float, Choice] | None = None
        for choice in choices:
            now = chosen.get(choice.group)
            gain = choice.freed - (now.freed if now is not None else 0)
            if gain <= 0:
                continue
            cost = (choice.error**2 - (now.error**2 if now is not None else 0.0)) / gain
            if not math.isnan(cost) and (best is None or (cost, -gain) < (best[0], -_gain(best[1], chosen))):
                best = cost, choice
        if best is None:
            break
        chosen[best[1].group] = best[1]
    return list(chosen.values())


def _gain(choice: Choice, chosen: dict[Group, Choice]) -> int:
    now = chosen.get(choice.group)
    return choice.freed - (now.freed if now is not None else 0)


def _code(chosen: Sequence[Choice]) -> str:
    if not chosen:
        return "saved.hooks()"
    return "saved.hooks(\n" + "".join(f"    {choice.code},\n" for choice in chosen) + ")"


def _notes(without: Trial, chosen: Sequence[Choice], saved_bytes: int, allowed: int) -> Iterable[str]:
    if any(choice.rule.codec.name == "recompute" for choice in chosen):
        yield "recompute() takes time in backward instead of memory"
    if saved_bytes > allowed:
        yield "the budget cannot be kept with these codecs: this is the least that was found"
    if without.eager:
        yield "graph breaks: what eager code saves between graphs is not part of the plan"
