"""Show the results of `dynx.saved` as blocks: the tensors saved for backward, errors of gradients, plans for a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dynx.records.saved import SavedGraph, SavedTensor
from dynx.records.saved_report import GradError, SavedPlan, SavedReport
from dynx.report import _words as words
from dynx.report._records.block import Block

_BAR = 24  # characters of the longest bar
_ROWS = 12  # number of bars


def of_report(report: SavedReport) -> Iterator[Block]:
    """Yield blocks: totals, bytes by module and line, tensors at the peak, activations, totals of other saved tensors."""
    total = f"{words.size(report.bytes)} of activations" if report.bytes else "no activations"
    yield Block(
        total + _stored(report.bytes, report.saved_bytes),
        words.plural(len(report.activations), "tensor"),
        notes=tuple(_notes(report)),
    )
    for title, names in (
        ("by module", [tensor.module or "no module" for tensor in report.activations]),
        ("by line", [words.line(tensor.location) or "no line" for tensor in report.activations]),
    ):
        rows = list(_bars(report.activations, names))
        if len(rows) > 1:
            yield Block(title, "", ("", "#bytes", "#stored", ""), rows)
    yield from _at_peak(report.graphs)
    columns = ("tensor", "#bytes", "#stored", "codec", "where", "computed by, read by")
    amounts = [tensor.bytes for tensor in report.activations]
    yield Block("saved tensors", "", columns, [_row(tensor) for tensor in report.activations], (), amounts)
    others = [tensor for tensor in report.tensors if not tensor.is_activation]
    if others:
        yield Block(f"{words.size(report.held_bytes)} in memory anyway", ", ".join(_held(others)), notes=tuple(_kept(others)))


def _at_peak(graphs: Sequence[SavedGraph]) -> Iterator[Block]:
    """Yield a block with the tensors in memory at the peak of the graph that needs most memory."""
    graph = max(graphs, key=lambda graph: max(graph.forward_peak, graph.backward_peak), default=None)
    if graph is None or not graph.at_peak:
        return
    which, peak = max(("forward", graph.forward_peak), ("backward", graph.backward_peak), key=lambda item: item[1])
    largest = graph.at_peak[: _ROWS - 1]
    rows: list[tuple[str, ...]] = [
        (one.name, words.size(one.bytes), one.role, words.line(one.location), _operator(one.op)) for one in largest
    ]
    amounts = [one.bytes for one in largest]
    if rest := peak - sum(amounts):
        rows.append(("others", words.size(rest), "", "", ""))
        amounts.append(rest)
    columns = ("tensor", "#bytes", "role", "where", "computed by")
    notes = ("a backend that fuses operators allocates fewer temporaries",)
    yield Block(f"at the simulated peak of {which}", words.size(peak), columns, rows, notes, amounts)


def _stored(before: int, after: int) -> str:
    return "" if before == after else f", stored in {words.size(after)} ({100 * after / before:.0f} %)" if before else ""


def _notes(report: SavedReport) -> Iterator[str]:
    how = "measured" if report.peaks == "measured" else "simulated in the order of the graphs"
    yield f"peak of forward {words.size(report.forward_peak)}, of backward {words.size(report.backward_peak)}, {how}"
    used = {tensor.rule for tensor in report.tensors}
    yield from (f"{rule} applies to no tensor" for rule in report.rules if rule not in used)
    if report.eager:
        yield "eager code saves tensors too, since a graph break split the function; one that it saves twice counts twice"


def _bars(tensors: Sequence[SavedTensor], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield (name, bytes, stored bytes, bar) for the largest `names` (module or line of each tensor); `█`: the stored part."""
    sizes, stored = Counter[str](), Counter[str]()
    for name, tensor in zip(names, tensors, strict=True):
        sizes[name] += tensor.bytes
        stored[name] += tensor.saved_bytes
    largest = max(sizes.values(), default=0) or 1
    for name, before in sizes.most_common(_ROWS):
        after = stored[name]
        whole = max(1, round(_BAR * before / largest))
        filled = min(whole, round(_BAR * after / largest)) if after else 0
        yield name, words.size(before), words.size(after), "█" * filled + "░" * (whole - filled)


def _row(tensor: SavedTensor) -> tuple[str, ...]:
    shape = "x".join(map(str, tensor.shape)) or "number"
    codec = tensor.codec or (f"none: {tensor.why}" if tensor.why else "")
    reads = ", ".join(map(_operator, tensor.used_by[:3])) + (" …" if len(tensor.used_by) > 3 else "")
    module = f" in {tensor.module}" if tensor.module else ""
    return (
        f"{tensor.name} {shape} {tensor.dtype}",
        words.size(tensor.bytes),
        words.size(tensor.saved_bytes),
        codec,
        words.line(tensor.location),
        f"{_operator(tensor.op)}{module}; {reads}",
    )


def _operator(name: str) -> str:
    """Return the name of an operator without `aten.` and `.default`: `gelu` for `aten.gelu.default`."""
    return name.removeprefix("aten.").removesuffix(".default")


def _held(tensors: Sequence[SavedTensor]) -> Iterator[str]:
    """Yield the number and bytes of the tensors of each kind as text: `2 params 8.2 kB`."""
    for kind in dict.fromkeys(tensor.kind for tensor in tensors):
        sizes = [tensor.bytes for tensor in tensors if tensor.kind == kind]
        yield f"{words.plural(len(sizes), kind)} {words.size(sum(sizes))}"


def _kept(tensors: Sequence[SavedTensor]) -> Iterator[str]:
    if any(tensor.kind == "output" and tensor.codec is None for tensor in tensors):
        yield 'outputs while the caller keeps them; where it does not, skip=("param", "buffer") packs inputs and outputs too'


def of_error(error: GradError) -> Iterator[Block]:
    """Yield a block with the error of all gradients, and a row for each parameter."""
    rows: list[tuple[str, ...]] = [
        (one.name, f"{one.relative:.2g}", f"{one.cosine:.6f}", f"{one.numel:,}") for one in error.parameters
    ]
    yield Block(
        f"relative error {error.relative:.2g}, cosine {error.cosine:.6f}",
        "of all gradients",
        ("parameter", "#relative", "#cosine", "#elements"),
        rows,
        (f"activations {words.size(error.bytes)}{_stored(error.bytes, error.saved_bytes)}",),
    )


def of_plan(plan: SavedPlan) -> Iterator[Block]:
    """Yield a block with the plan (rules for a memory budget), its bytes and gradient error, and one with the rules tried."""
    state = "fits" if plan.fits else "does not fit"
    is_timed = plan.seconds is not None and plan.seconds_before is not None
    step = f"forward and backward take {_time(plan.seconds)}, without rules {_time(plan.seconds_before)}"
    yield Block(
        f"{words.size(plan.bytes)} of activations{_stored(plan.bytes, plan.saved_bytes)}, "
        f"relative error {plan.relative:.2g}, cosine {plan.cosine:.6f}",
        f"{state} the budget of {words.size(plan.budget)}",
        notes=(*([step] if is_timed else []), *plan.code.splitlines(), *plan.notes),
    )
    rows = [(one.rule, words.size(one.freed_bytes), f"{one.relative:.2g}", _time(one.seconds)) for one in plan.tried]
    if rows:
        yield Block("tried, each by itself", "", ("rule", "#frees", "#relative error", "#packed and unpacked in"), rows)


def _time(seconds: float | None) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds is not None else ""
