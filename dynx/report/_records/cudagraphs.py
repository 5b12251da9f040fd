"""Show the report of `dynx.cudagraphs` as blocks (title, table, notes)."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.cudagraphs import CudagraphReport, GraphUse
from dynx.report import _words as words
from dynx.report._records.block import Block


def of_graphs(report: CudagraphReport) -> Iterator[Block]:
    title = words.plural(len(report.graphs), "graph")
    captured = sum(use.recordings > 0 for use in report.graphs)
    yield Block(title, f"{captured} captured", notes=report.notes)
    for use in report.graphs:
        rows = [
            (each.name, each.kind + (", changed" if each.is_mutated else ""), each.why, words.size(each.nbytes))
            for each in use.plan.inputs
        ]
        yield Block(f"{use.plan.part} graph", _use(use), ("input", "class", "why", "#bytes"), rows, tuple(_skips(use)))
    if report.pools:
        rows = [
            (pool.what, f"cuda:{pool.device}", words.size(pool.bytes_reserved), words.size(pool.bytes_used))
            for pool in report.pools
        ]
        total = words.size(sum(pool.bytes_reserved for pool in report.pools))
        yield Block("memory pools", f"{total} reserved", ("of", "device", "#reserved", "#used"), rows)


def _use(use: GraphUse) -> str:
    if not use.recordings:
        return "runs uncaptured"
    counts = [words.plural(use.recordings, "recording"), words.plural(use.replays, "replay")]
    copied = (
        f"{words.plural(use.copies, 'copy', 'copies')} of {words.size(use.bytes_copied)} a call" if use.copies else "no copies"
    )
    return ", ".join([*counts, copied, f"{words.size(use.bytes_held)} held"])


def _skips(use: GraphUse) -> Iterator[str]:
    for skip in use.plan.skips:
        where = f"{words.line(skip.location)}: " if skip.location is not None else ""
        yield f"{where}{skip.reason}; {skip.advice}"
    for number, piece in enumerate(use.plan.pieces):
        state = f"not captured: {piece.why_uncaptured}" if piece.why_uncaptured else "captured"
        yield f"piece {number + 1}: {words.plural(piece.launches, 'launch', 'launches')}, {state}"
    yield from use.notes
