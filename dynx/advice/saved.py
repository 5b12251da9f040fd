"""Advice rules DX7xx: codecs of `dynx.saved` that change gradients more than their precision suggests, and unused rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dynx.advice.rule import Rule, RuleAtLine
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.saved import SavedGraph, SavedTensor

MASK = Rule("DX701", "a mask is stored with less precision")
ENLARGED = Rule("DX702", "backward enlarges the error of a rounded tensor")
COMPUTED = Rule("DX703", "a tensor is computed again from a rounded one")
UNUSED = Rule("DX704", "a rule for saved tensors applies to none")
RULES = (MASK, ENLARGED, COMPUTED, UNUSED)


class Loss(NamedTuple):
    """A codec that changes gradients more than its precision suggests, with the tensors of one graph that it stores so."""

    rule: Rule
    tensors: Sequence[SavedTensor]
    title: str
    advice: str

    @property
    def location(self) -> Location | None:
        return self.tensors[0].location


def losses(graph: SavedGraph) -> Iterator[Loss]:
    """Yield each kind of loss in a graph."""
    rounded = [tensor for tensor in graph.tensors if tensor.codec is not None and not tensor.is_exact]
    if masks := [tensor for tensor in rounded if tensor.reads_as_mask and not tensor.keeps_mask]:
        yield Loss(
            MASK,
            masks,
            f"{masks[0].name} is stored as {masks[0].codec}, and backward reads which elements are 0:"
            " small ones become 0, and their gradient is lost",
            "store it as bf16, or leave it out with line= or name=; where backward reads nothing else of it,"
            " rule(codecs.bits(), mask_only=True) before this one stores it exactly",
        )
    if sources := [tensor for tensor in rounded if tensor.enlarged_by]:
        ops = ", ".join(sources[0].enlarged_by[:3])
        yield Loss(
            ENLARGED,
            sources,
            f"{sources[0].name} is stored as {sources[0].codec}, and backward computes {ops} again from the rounded values",
            "measure with saved.grad_error; a more precise codec for this line, or none",
        )
    by_name = {tensor.name: tensor for tensor in rounded}
    if computed := [tensor for tensor in graph.tensors if any(source in by_name for source in tensor.computed_from)]:
        source = next(by_name[name] for name in computed[0].computed_from if name in by_name)
        yield Loss(
            COMPUTED,
            computed,
            f"{computed[0].name} is computed again from {source.name}, which is stored as {source.codec}: it has its error",
            f"store {source.name} exactly, with no rule of less precision on it",
        )


def find(graphs: Iterable[SavedGraph]) -> tuple[Finding, ...]:
    """Return the findings for graphs that were compiled under hooks: one for each rule and source line.

    Their cost is given as 0 seconds: what they cost is precision, or memory.
    """
    hooked = [graph for graph in graphs if graph.hooks]
    findings = [_finding(loss, loss.location) for graph in hooked for loss in losses(graph) if loss.location is not None]
    merged: dict[RuleAtLine, Finding] = {}
    for finding in (*findings, *_unused(hooked)):
        key = RuleAtLine(finding.rule, finding.location.file, finding.location.line)
        first = merged.get(key)
        merged[key] = finding if first is None else replace(first, count=first.count + finding.count)
    return tuple(merged.values())


def _finding(loss: Loss, location: Location) -> Finding:
    evidence = tuple(f"{tensor.name} at {tensor.location}" for tensor in loss.tensors[:5] if tensor.location is not None)
    return Finding(loss.rule.id, loss.title, location, 0.0, evidence, loss.advice)


def _unused(graphs: Sequence[SavedGraph]) -> Iterator[Finding]:
    """Yield a finding for each function with a rule that applies to no tensor of any of its graphs."""
    by_function: dict[tuple[str, int], list[SavedGraph]] = {}
    for graph in graphs:
        if graph.location is not None:
            by_function.setdefault((graph.location.file, graph.location.line), []).append(graph)
    for compiled in by_function.values():
        location = compiled[0].location
        unused = [rule for rule in compiled[0].unused_rules if all(rule in graph.unused_rules for graph in compiled)]
        if unused and location is not None:
            packable = (tensor for graph in compiled for tensor in graph.tensors if tensor.kind in ("activation", "output"))
            why = {tensor.why for tensor in packable if tensor.why}
            yield Finding(
                UNUSED.id,
                f"{unused[0]} applies to no saved tensor of {location.function}",
                location,
                0.0,
                tuple(sorted(why)[:5]),
                "see saved.report for the names, modules and lines of what is saved; or drop the rule",
            )
