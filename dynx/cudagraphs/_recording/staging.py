"""Choose how inputs reach a captured graph, and how its results reach the caller.

The configuration says what is wanted; the plan, the inputs and the runtime say what is possible. `cudagraphs.stats().staging`
and `cudagraphs.explain` show the choice and its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._recording.inputs import copyable_in_graph, is_plain
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.records.cudagraphs import GraphPlan, Staging, StagingKind

FEW = 4  # most memcpy nodes that are worth it: a graph runs them one after another
OutputKind = Literal["clone", "alias", "static"]


def choose_staging(
    plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any], failures: Mapping[StagingKind, str]
) -> Staging:
    """Choose how dynamic inputs reach a captured graph and how its results reach the caller, each with the reason.

    `failures` are the kinds of staging ("patch", "memcpy_node") that failed for this graph, each with the reason.
    """
    outputs, outputs_reason = _outputs(plan, config)
    why_not_patched = ""
    if plan.patches_params or config.inputs == "patch":
        why_not_patched = failures.get("patch") or _why_not_patchable(plan, args)
        if not why_not_patched:
            option = "params" if plan.patches_params else "inputs"
            return Staging("patch", f"the configuration has {option}='patch'", outputs, outputs_reason, clones_in_graph=True)
    kind, reason = _copies(plan, config, runtime, args, failures)
    uses_memcpy_nodes = config.inputs != "copy" and "memcpy_node" not in failures and runtime.can_set_memcpy_nodes()
    return Staging(kind, reason, outputs, outputs_reason, clones_in_graph=uses_memcpy_nodes, why_not_patched=why_not_patched)


def _outputs(plan: GraphPlan, config: Config) -> tuple[OutputKind, str]:
    """Return how results reach the caller, and why: as configured, unless autograd needs results that it can keep or change."""
    if plan.part == "backward":
        return "clone", "autograd keeps the first gradient and adds to it"
    if config.outputs == "static" and (plan.part == "forward" or plan.is_differentiated):
        return "alias", "autograd attaches its graph to the results, so they cannot be the recording's own tensors"
    return config.outputs, f"the configuration has outputs={config.outputs!r}"


def _why_not_patchable(plan: GraphPlan, args: Sequence[Any]) -> str:
    """Return why the graph cannot be captured with patched input pointers; "" if that can be tried."""
    if plan.indices("generator"):
        return "the graph draws random numbers, so patched pointers cannot be verified by replaying it"
    if not plan.is_pure:
        return "the graph mutates its inputs, so patched pointers cannot be verified by replaying it"
    for index in plan.indices("dynamic"):
        if not is_plain(args[index]):
            return f"the tensor {plan.inputs[index].name} has gaps, overlaps itself, or may be conjugated"
    return ""


def _copies(
    plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any], failures: Mapping[StagingKind, str]
) -> tuple[StagingKind, str]:
    """Return whether memcpy nodes of the graph or copies before the replay update the dynamic inputs, and why."""
    count = len(plan.indices("dynamic"))
    if not count:
        return "copy", "the graph has no dynamic inputs"
    if config.inputs == "copy":
        return "copy", "the configuration has inputs='copy'"
    if failure := failures.get("memcpy_node"):
        return "copy", failure
    if not runtime.can_set_memcpy_nodes():
        return "copy", "the source of a memcpy node can only be set with cuda-bindings"
    if config.inputs != "memcpy_node" and count > FEW:
        return "copy", f"{count} dynamic inputs: more than {FEW} memcpy nodes take longer than one copy before the replay"
    if not copyable_in_graph(args, plan):
        return "copy", "no dynamic input is dense, of fixed sizes and left unchanged"
    asked = "the configuration has inputs='memcpy_node'" if config.inputs == "memcpy_node" else f"{count} dynamic inputs"
    return "memcpy_node", asked
