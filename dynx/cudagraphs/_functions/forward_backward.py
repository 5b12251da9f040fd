"""A forward recording and the backward recording that belongs to it, behind one autograd function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from dynx._torch.autograd.engine import accumulator_of, is_wanted, renew_accumulators
from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx._torch.ops import foreach
from dynx._torch.ops.liveness import weak_tensor
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.autograd_tape import Leaves, Traced
from dynx.cudagraphs._recording.recording import Call, Recording
from dynx.cudagraphs._runtime.interface import Captured, Runtime
from dynx.cudagraphs._state.params import may_be_replaced
from dynx.errors import UsageError
from dynx.records.cudagraphs import GraphInput, GraphPlan, Part

Named = tuple[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Gradients:
    """Which gradients a pair computes, and where they go."""

    parameters: tuple[Named, ...]
    leaves: Leaves  # has the function use other leaves for a while
    allow_unused: bool = True
    in_place: bool = False  # the graph writes to `.grad`; autograd sees one input instead of all parameters


class Pair:
    """Replays a forward pass, and its backward pass when autograd gets there.

    What autograd saves lies in the recording: until it was read, or autograd has let go of it, the pair is pending.
    """

    def __init__(
        self,
        call: Call,
        plan: GraphPlan,
        config: Config,
        runtime: Runtime,
        tensors: Sequence[torch.Tensor],
        gradients: Gradients,
    ) -> None:
        self._config, self._runtime, self._gradients = config, runtime, gradients
        self._needs = [index for index, each in enumerate(tensors) if each.requires_grad]
        self._parameters = [each for _, each in gradients.parameters]
        _refuse_changes(plan, self._needs)
        needs = [each.requires_grad for each in tensors]
        renew_accumulators([each for each in self._parameters if not may_be_replaced(each)])
        self._traced = Traced(call, needs, gradients.leaves, self._parameters)
        outputs = "alias" if config.outputs == "static" else config.outputs  # autograd writes to what it is given
        how = replace(config, outputs=outputs)
        plan = replace(plan, is_differentiated=True)
        self._forward = Recording(self._traced.forward, plan, how, runtime, tensors, runtime.new_pool())
        self._pool = runtime.new_pool()  # of what is read after the next forward pass: gradients in place
        self._backward = self._record_backward() if self._traced.results else None
        if not gradients.in_place:
            self._traced.let_go()
        self._results = list(self._traced.results.items())
        self._adding: Recording | None = None
        self._anchor = torch.zeros((), requires_grad=True)
        self._end = accumulator_of(self._anchor)
        self._pending: Any = None
        self.held: Any = None
        self.also: Sequence[torch.Tensor] = ()

    @property
    def is_pending(self) -> bool:
        return self._pending is not None and not self._pending.expired()

    def run(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Replay the forward pass; what it gives leads back to the arguments and parameters."""
        if self._backward is None:
            with torch.no_grad():
                return self._forward.run(tensors)
        sources = [self._anchor] if self._gradients.in_place else self._parameters
        outputs: list[Any] = []  # also those that are no tensors
        given = _Replay.apply(self, tensors, outputs, *[tensors[index] for index in self._needs], *sources)
        if len(given) == len(outputs):
            return list(given)
        rest = iter(given)
        return [next(rest) if isinstance(each, torch.Tensor) else each for each in outputs]

    def replay_forward(self, tensors: Sequence[torch.Tensor], token: torch.Tensor) -> list[Any]:
        self._pending = weak_tensor(token)
        return self._forward.run(tensors)

    def is_differentiable(self, index: int) -> bool:
        return index in self._traced.results

    def replay_backward(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Give the gradients of the arguments that need one, and of the parameters or the anchor."""
        assert self._backward is not None
        given = [_like(each, result) for each, (_, result) in zip(gradients, self._results, strict=True)]
        if not self._gradients.in_place:
            return self._backward.run(given)
        if not is_wanted(self._end):  # as of torch.autograd.grad for arguments
            return [*self._without_parameters(self._backward, given), None]
        return [*self._accumulate(self._backward, given), None]

    def _without_parameters(self, backward: Recording, given: Sequence[torch.Tensor]) -> list[Any]:
        """Leave the gradients of parameters as they are, though the graph writes over those that it has written before."""
        mine = [each for each in backward.also if each is not None]
        kept = [each.clone() for each in mine]
        outputs = backward.run(given)
        if mine:
            foreach.copy_all(mine, kept)
        return outputs

    def _accumulate(self, backward: Recording, given: Sequence[torch.Tensor]) -> list[Any]:
        """Write the gradients of the parameters, or add them where gradients of an earlier replay still are."""
        pairs = [(each, mine) for each, mine in zip(self._parameters, backward.also, strict=True) if mine is not None]
        now = [each.grad for each, _ in pairs]
        if any(each is not None for each in now):
            if all(each is mine for each, (_, mine) in zip(now, pairs, strict=True)):
                self._adding = self._adding or self._record_backward(adds_to=[mine for _, mine in pairs])
                return self._adding.run(given)
            now = [each.clone() if each is mine else each for each, (_, mine) in zip(now, pairs, strict=True)]
        outputs = backward.run(given)
        for (each, mine), before in zip(pairs, now, strict=True):
            each.grad = mine if before is None else before.add_(mine)
        return outputs

    def _record_backward(self, adds_to: Sequence[torch.Tensor] | None = None) -> Recording:
        results = self._traced.results
        inputs = [
            GraphInput(f"gradient {index}", "dynamic", "a gradient of an output", is_fixed=True, nbytes=each.nbytes)
            for index, each in results.items()
        ]
        given = len(self._needs) + (0 if self._gradients.in_place else len(self._parameters))
        plan = GraphPlan("backward", tuple(inputs), given, are_all_handed_out=False)

        def backward(gradients: list[Any]) -> list[torch.Tensor | None]:
            found = self._traced.backward(gradients)
            if adds_to is None:
                return found
            foreach.add_all(adds_to, [each for each in found[given:] if each is not None])
            return found[:given]

        with torch.no_grad():
            likely = [torch.empty_like(each) for each in results.values()]
        recording = Recording(backward, plan, self._config, self._runtime, likely, self._pool)
        self._check_used()
        return recording

    def _check_used(self) -> None:
        names = [f"argument {index}" for index in self._needs] + [name for name, _ in self._gradients.parameters]
        unused = [name for name, is_used in zip(names, self._traced.is_used, strict=True) if not is_used]
        if unused and not self._gradients.allow_unused:
            raise UsageError(f"{', '.join(unused)} gets no gradient\n  allow_unused_input=True, if that is meant to be")

    @property
    def captured(self) -> list[tuple[Part, Captured]]:
        return [graph for each in self._all() for graph in each.captured]

    def _all(self) -> list[Recording]:
        return [each for each in (self._forward, self._backward, self._adding) if each is not None]

    def close(self) -> None:
        for each in self._all():
            each.close()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pair: Pair, tensors: Sequence[torch.Tensor], outputs: list[Any], *sources: torch.Tensor) -> Any:
        token = torch.empty(0)  # lives as long as what autograd saves
        ctx.pair = pair
        ctx.save_for_backward(token)
        ctx.token = token if hooks_are_set() else None  # which may give back another in its stead
        outputs += pair.replay_forward(tensors, token)
        given = [(index, each) for index, each in enumerate(outputs) if isinstance(each, torch.Tensor)]
        ctx.differentiable = [place for place, (index, _) in enumerate(given) if pair.is_differentiable(index)]
        if len(ctx.differentiable) < len(given):
            ctx.mark_non_differentiable(*(each for index, each in given if not pair.is_differentiable(index)))
        return tuple([each for _, each in given])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.saved_tensors  # noqa: B018  # raises where backward ran before
        ctx.token = None
        found = ctx.pair.replay_backward([gradients[place] for place in ctx.differentiable])
        return None, None, None, *found


def _like(gradient: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Lay a gradient out as the result that it is for; that of a sum, for one, is a single number that is expanded."""
    if gradient.stride() == result.stride() and gradient.dtype == result.dtype:
        return gradient
    return torch.empty_like(result).copy_(gradient)


def _refuse_changes(plan: GraphPlan, needs: Sequence[int]) -> None:
    for index in needs:
        if index in plan.mutated:
            raise UsageError(f"{plan.inputs[index].name} needs gradients and is changed in place\n  give a copy of it")
