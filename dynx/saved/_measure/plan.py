"""`plan`: find rules that fit a memory budget with the smallest error of the gradients."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dynx.errors import BadCodec, DynxWarning, UsageError
from dynx.records.saved import SavedTensor
from dynx.records.saved_report import SavedPlan, TriedRule
from dynx.saved import codecs as known
from dynx.saved._codec import Codec
from dynx.saved._hooks import SavedHooks, hooks
from dynx.saved._measure.grad_error import compared, difference
from dynx.saved._measure.plan_code import rules_of
from dynx.saved._measure.probe import probe, probes
from dynx.saved._measure.trial import Program, Trial
from dynx.saved._rules import rule

_TRIED = 0.99  # of the bytes: the smallest tensors beyond this share are not packed
_REPEATS = 5  # steps that are timed
# backends that save the same tensors, but compile faster
_QUICK = {"inductor": "aot_eager_decomp_partition"}


class Choice(NamedTuple):
    """A codec for the tensors with one name, and its effect: freed bytes, relative gradient error, seconds to pack/unpack."""

    name: str
    codec: Codec
    freed: int
    error: float
    seconds: float | None


def plan(
    fn: Any,
    /,
    *args: Any,
    budget: str | int = "60%",
    codecs: Sequence[Codec] | None = None,
    backend: Any = None,
    **kwargs: Any,
) -> SavedPlan:
    """Find rules with which the activations fit a memory budget, with the smallest error of the gradients.

    First, the function is compiled once with each codec for all tensors, to find the bytes that it frees. Then, for each pair
    of a saved tensor and an inexact codec, one backward pass that packs only this tensor measures the error; only the largest
    tensors, with 99 % of the bytes, are tried. Pairs are chosen greedily, by the lowest squared error per freed byte. Finally,
    the function is compiled with the chosen rules, and their total bytes, error and seconds are measured.

    For inductor, the pairs are measured with the backend `aot_eager_decomp_partition`, which compiles faster; the final rules
    are measured with inductor.

    Args:
        fn: A function that returns a loss, or a module; compiled or not.
        *args: Arguments of the call.
        budget: The bytes that stored activations may take: a number, or a share of their bytes without rules, such as `"60%"`.
        codecs: Codecs to try. Default: bits, bf16, int8, fp8 and int4. `recompute` and `offload` have no error, but take time:
            compare `seconds` with `seconds_before`.
        backend: A backend of torch.compile. Default: the backend of `fn`, or inductor if `fn` is not compiled.
        **kwargs: Keyword arguments of the call.

    Returns:
        A `SavedPlan` with the rules as code to paste, their bytes, error and seconds, and all pairs of tensor and codec.

    Raises:
        UsageError: `fn` is not callable, or returns nothing that requires a gradient; or `budget` or a codec is invalid.

    Example:
        >>> import torch
        >>> from dynx import saved
        >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
        >>> plan = saved.plan(model, torch.randn(32, 64), budget="60%", backend="aot_eager")
        >>> plan.fits, plan.relative < 0.01
        (True, True)
    """
    program = Program(fn, args, kwargs, backend)
    candidates = _checked(codecs)
    real = program.backend
    without = program.run(hooks(), repeats=_REPEATS)  # not None: hooks save tensors instead of views
    total = sum(graph.bytes for graph in without.graphs)
    allowed = _bytes_of(budget, total)
    choices: list[Choice] = []
    if allowed < total:
        program.backend = _QUICK.get(getattr(real, "compiler_name", real), real)
        choices = list(_tried(program, candidates))
        program.backend = real
    chosen = {choice.name: choice.codec for choice in _greedy(choices, total - allowed)}
    taken_by = {codec: {choice.name for choice in choices if choice.codec is codec} for codec in candidates}
    rules = rules_of(_activations(without), chosen, taken_by)
    final = program.run(hooks(*(one.rule for one in rules), validate=False), repeats=_REPEATS) if rules else without
    error = compared(final, without)
    saved_bytes = sum(graph.saved_bytes for graph in final.graphs)
    return SavedPlan(
        "saved.hooks(\n" + "".join(f"    {one.code},\n" for one in rules) + ")" if rules else "saved.hooks()",
        tuple(str(one.rule) for one in rules),
        total,
        saved_bytes,
        allowed,
        error.relative,
        error.cosine,
        tuple(TriedRule(str(rule(one.codec, name=one.name)), one.freed, one.error, one.seconds) for one in choices),
        tuple(_notes(without, final, [one.rule.codec for one in rules], saved_bytes, allowed)),
        final.seconds,
        without.seconds,
    )


def _bytes_of(budget: Any, total: int) -> int:
    share = budget.removesuffix("%") if isinstance(budget, str) and budget.endswith("%") else None
    try:
        allowed = round(total * float(share) / 100) if share is not None else budget
    except ValueError:
        allowed = None
    if type(allowed) is not int or allowed < 0:
        raise UsageError(f'budget={budget!r} is not an amount of memory\n  pass a number of bytes, or a share such as "60%"')
    return allowed


def _checked(tried: Sequence[Codec] | None) -> tuple[Codec, ...]:
    if tried is None:
        return known.bits(), known.bf16(), known.int8(), known.fp8(), known.int4()
    for codec in tried:
        if not isinstance(codec, Codec):
            raise UsageError(f"{codec!r} is not a codec\n  pass codecs of dynx.saved.codecs, such as saved.codecs.fp8()")
    return tuple(tried)


def _tried(program: Program, candidates: Sequence[Codec]) -> Iterator[Choice]:
    """Try on each of the largest activations the codecs that free bytes; yield the freed bytes and the gradient error."""
    names = _largest(_activations(program.run(hooks())))
    freed = {codec: _freed(program, hooks(rule(codec))) for codec in candidates}
    with program.backward(probes(names)) as backward:
        reference = backward()
        for name in names:
            for codec, by_name in freed.items():
                if by_name.get(name, 0) <= 0:
                    continue
                if codec.is_exact:
                    yield Choice(name, codec, by_name[name], 0.0, None)
                else:
                    gradients, seconds = probe(name, codec, backward)
                    yield Choice(name, codec, by_name[name], difference(gradients, reference).relative, seconds)


def _activations(trial: Trial) -> list[SavedTensor]:
    return [tensor for graph in trial.graphs for tensor in graph.activations]


def _largest(tensors: Sequence[SavedTensor]) -> list[str]:
    """Return the names of the largest tensors, which together take 99 % of the bytes; the largest first."""
    sizes = Counter[str]()
    for tensor in tensors:
        sizes[tensor.name] += tensor.bytes
    names, covered = [], 0
    for name, size in sizes.most_common():
        if covered >= sizes.total() * _TRIED:
            break
        names.append(name)
        covered += size
    return names


def _freed(program: Program, tried: SavedHooks) -> Mapping[str, int]:
    """Return how many bytes the hooks `tried` free, by name of the tensor; an empty dict if the codec raises BadCodec."""
    result = Counter[str]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DynxWarning)  # about errors, which are measured here
            trial = program.run(tried)
    except BadCodec:
        return {}  # the codec cannot pack a tensor of the function
    for tensor in _activations(trial):
        result[tensor.name] += tensor.bytes - tensor.saved_bytes
    return result


def _greedy(choices: Sequence[Choice], needed: int) -> list[Choice]:
    """Choose codecs until `needed` bytes are freed. Each step adds the least squared error per freed byte."""
    chosen: dict[str, Choice] = {}
    while sum(choice.freed for choice in chosen.values()) < needed:
        best: tuple[float, int, Choice] | None = None
        for choice in choices:
            now = chosen.get(choice.name)
            gain = choice.freed - (now.freed if now is not None else 0)
            cost = (choice.error**2 - (now.error**2 if now is not None else 0.0)) / max(gain, 1)
            if gain > 0 and not math.isnan(cost) and (best is None or (cost, -gain) < best[:2]):
                best = cost, -gain, choice
        if best is None:
            break
        chosen[best[2].name] = best[2]
    return list(chosen.values())


def _notes(without: Trial, final: Trial, chosen: Sequence[Codec], saved_bytes: int, allowed: int) -> Iterable[str]:
    if any(codec.name == "recompute" for codec in chosen):
        yield "recompute() takes time in backward instead of memory"
    if saved_bytes > allowed:
        yield "the budget cannot be kept with these codecs: this is the least that was found"
    if without.eager or final.eager:
        yield "graph breaks: what eager code saves between graphs is not part of the plan"
