"""A recording of a forward pass and one of its backward pass, both replayed by one `torch.autograd.Function`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dynx._torch.autograd.engine import accumulator_of, renew_accumulators, will_execute
from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx._torch.ops import foreach
from dynx._torch.ops.liveness import weak_tensor
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.autograd_tape import AutogradTape, Leaves
from dynx.cudagraphs._functions.pair_verification import PairVerification
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._runtime.interface import CapturedGraph, Runtime
from dynx.cudagraphs._state.params import may_be_replaced
from dynx.errors import UsageError
from dynx.records.cudagraphs import GraphInput, GraphPlan, Part

Named = tuple[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class GradientPolicy:
    """How a pair of recordings (forward, backward) trains parameters: which ones, and whether it writes `.grad` itself.

    Attributes:
        parameters: The parameters that get gradients, as pairs of name and parameter.
        leaves: Context manager that replaces parameters by new leaf tensors over the same memory.
        allow_unused: Whether to accept parameters and arguments that get no gradient, instead of raising UsageError.
        in_place: Whether the graph itself writes to `.grad`; in autograd, one dummy input then stands for all parameters.
    """

    parameters: tuple[Named, ...]
    leaves: Leaves
    allow_unused: bool = True
    in_place: bool = False


class ForwardBackward:
    """A pair of recordings: of a forward pass, and of its backward pass, which is replayed when autograd reaches it.

    Tensors that the forward pass saves are in the recording's memory. After a forward pass the pair is pending, which means
    that it is not replayed for other calls, until the backward pass has read these tensors or autograd has freed its graph.
    """

    may_return_arguments = False
    why_not_patched = ""

    def __init__(
        self,
        call: Call,
        plan: GraphPlan,
        config: Config,
        runtime: Runtime,
        tensors: Sequence[torch.Tensor],
        gradients: GradientPolicy,
    ) -> None:
        self._config, self._runtime, self._gradients = config, runtime, gradients
        self._needs = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
        self._parameters = [param for _, param in gradients.parameters]
        _refuse_mutations(plan, self._needs)
        needs = self._are_needed = [tensor.requires_grad for tensor in tensors]
        not_replaced = [param for param in self._parameters if not may_be_replaced(param)]
        renew_accumulators(not_replaced)
        self._tape = AutogradTape(call, needs, gradients.leaves, self._parameters, runs_again=gradients.in_place)
        plan = replace(plan, is_differentiated=True)
        self._forward = Recording(self._tape.forward, plan, config, runtime, tensors, runtime.new_pool("forward pass"))
        self._pool = runtime.new_pool("backward pass")  # its own: gradients in place are read after the next forward
        self._backward = self._record_backward() if self._tape.results else None
        if not gradients.in_place:
            self._tape.release()
        renew_accumulators(not_replaced)  # those of the capture would make later backward passes wait for its stream
        self._results = list(self._tape.results.items())
        self._adding: Recording | None = None  # a backward recording that adds to existing gradients
        self._anchor = torch.zeros((), requires_grad=True)  # the input of `_Replay` that stands for all parameters
        self._anchor_accumulator = accumulator_of(self._anchor)
        self._pending: Any = None
        self._verification: PairVerification | None = None
        self.held: Any = None
        self.kept_outputs: Sequence[torch.Tensor] = ()

    @property
    def has_backward(self) -> bool:
        return True

    @property
    def is_pending(self) -> bool:
        return self._pending is not None and not self._pending.expired()

    def run(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Replay the forward pass; the results get a `grad_fn` that replays the backward pass."""
        if self._backward is None:
            with torch.no_grad():
                return self._forward.run(tensors)
        sources = [self._anchor] if self._gradients.in_place else self._parameters
        outputs: list[Any] = []  # also outputs that are not tensors
        results = _Replay.apply(self, tensors, outputs, *[tensors[index] for index in self._needs], *sources)
        if len(results) == len(outputs):
            return list(results)
        tensor_results = iter(results)
        return [next(tensor_results) if isinstance(output, torch.Tensor) else output for output in outputs]

    def replay_forward(self, tensors: Sequence[torch.Tensor], token: torch.Tensor) -> list[Any]:
        self._pending = weak_tensor(token)
        if self._verification is not None:
            return self._verification.forward(self._forward.run, tensors)
        return self._forward.run(tensors)

    def verify(self, uncaptured: Call, memory: Callable[[], Sequence[Any]], what: str, times: int) -> None:
        needs, leaves, parameters = self._are_needed, self._gradients.leaves, self._parameters

        def new_tape() -> AutogradTape:  # without a reference to self: the cycle would keep the memory of the graphs alive
            return AutogradTape(uncaptured, needs, leaves, parameters, runs_again=False)

        self._verification = PairVerification(new_tape, memory, what, times)

    def is_differentiable(self, index: int) -> bool:
        return index in self._tape.results

    def replay_backward(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Replay the backward pass; return the gradients of arguments that require grad, and of the parameters.

        If the graph writes `.grad` itself (`in_place`), one None replaces the gradients of the parameters: in autograd, one
        dummy input stands for all parameters.
        """
        assert self._backward is not None
        inputs = [_with_layout_of(gradient, result) for gradient, (_, result) in zip(gradients, self._results, strict=True)]
        if self._verification is not None:
            return self._verification.backward(self._replay_backward, inputs, len(self._needs), self._parameters_written())
        return self._replay_backward(inputs)

    def _parameters_written(self) -> Sequence[torch.Tensor] | None:
        """Return the parameters whose `.grad` the replay itself writes; None if it returns their gradients to autograd."""
        if not self._gradients.in_place:
            return None
        return self._parameters if will_execute(self._anchor_accumulator) else ()

    def _replay_backward(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        assert self._backward is not None
        if not self._gradients.in_place:
            return self._backward.run(inputs)
        if not will_execute(self._anchor_accumulator):  # torch.autograd.grad for arguments only
            return [*self._replay_for_arguments(self._backward, inputs), None]
        return [*self._accumulate(self._backward, inputs), None]

    def _replay_for_arguments(self, backward: Recording, inputs: Sequence[torch.Tensor]) -> list[Any]:
        """Replay the backward pass and return the gradients of arguments; leave the gradients of parameters unchanged."""
        written = [gradient for gradient in backward.kept_outputs if gradient is not None]
        before = [gradient.clone() for gradient in written]
        outputs = backward.run(inputs)
        if written:
            foreach.copy_all(written, before)
        return outputs

    def _accumulate(self, backward: Recording, inputs: Sequence[torch.Tensor]) -> list[Any]:
        """Replay the backward pass; set or increment `.grad` of the parameters, and return the gradients of the arguments."""
        pairs = [
            (param, written)
            for param, written in zip(self._parameters, backward.kept_outputs, strict=True)
            if written is not None
        ]
        current = [param.grad for param, _ in pairs]
        if any(grad is not None for grad in current):
            if all(grad is written for grad, (_, written) in zip(current, pairs, strict=True)):
                self._adding = self._adding or self._record_backward(adds_to=[written for _, written in pairs])
                return self._adding.run(inputs)
            current = [grad.clone() if grad is written else grad for grad, (_, written) in zip(current, pairs, strict=True)]
        outputs = backward.run(inputs)
        for (param, written), before in zip(pairs, current, strict=True):
            param.grad = written if before is None else before.add_(written)
        return outputs

    def _record_backward(self, adds_to: Sequence[torch.Tensor] | None = None) -> Recording:
        """Record the backward pass; with `adds_to`, the graph adds the parameters' gradients to these tensors."""
        results = self._tape.results
        inputs = [
            GraphInput(f"gradient {index}", "dynamic", "a gradient of an output", is_fixed=True, nbytes=result.nbytes)
            for index, result in results.items()
        ]
        returned = len(self._needs) + (0 if self._gradients.in_place else len(self._parameters))
        plan = GraphPlan("backward", tuple(inputs), returned, returns_all_outputs=False)

        def backward(gradients: list[Any]) -> list[torch.Tensor | None]:
            computed = self._tape.backward(gradients)
            if adds_to is None:
                return computed
            foreach.add_all(adds_to, [gradient for gradient in computed[returned:] if gradient is not None])
            return computed[:returned]

        with torch.no_grad():
            likely = [torch.empty_like(result) for result in results.values()]
        (_, forward), *_ = self._forward.captured
        config = replace(self._config, inputs="copy") if self._tape.runs_once else self._config  # copies are captured once
        recording = Recording(backward, plan, config, self._runtime, likely, self._pool, forward)
        self._check_used()
        return recording

    def _check_used(self) -> None:
        names = [f"argument {index}" for index in self._needs] + [name for name, _ in self._gradients.parameters]
        unused = [name for name, is_used in zip(names, self._tape.is_used, strict=True) if not is_used]
        if unused and not self._gradients.allow_unused:
            raise UsageError(
                f"the backward pass computes no gradient for {', '.join(unused)}\n"
                "  pass allow_unused_input=True if that is intended"
            )

    @property
    def captured(self) -> list[tuple[Part, CapturedGraph]]:
        return [graph for recording in self._all() for graph in recording.captured]

    def _all(self) -> list[Recording]:
        return [recording for recording in (self._forward, self._backward, self._adding) if recording is not None]

    def close(self) -> None:
        for recording in self._all():
            recording.close()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pair: ForwardBackward, tensors: Sequence[torch.Tensor], outputs: list[Any], *sources: torch.Tensor
    ) -> Any:
        token = torch.empty(0)  # lives as long as the saved tensors
        ctx.pair = pair
        ctx.save_for_backward(token)
        ctx.token = token if hooks_are_set() else None  # the hooks may replace the saved token
        outputs += pair.replay_forward(tensors, token)
        results = [(index, output) for index, output in enumerate(outputs) if isinstance(output, torch.Tensor)]
        ctx.differentiable = [position for position, (index, _) in enumerate(results) if pair.is_differentiable(index)]
        if len(ctx.differentiable) < len(results):
            ctx.mark_non_differentiable(*(output for index, output in results if not pair.is_differentiable(index)))
        return tuple([output for _, output in results])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # autograd would treat the gradients as constants
            raise UsageError(
                "create_graph=True: gradients of a recorded function cannot be differentiated again\n"
                "  compute a gradient penalty with the function itself, uncaptured, or capture the whole step with train_step"
            )
        ctx.saved_tensors  # noqa: B018 - raises if backward ran before
        ctx.token = None
        computed = ctx.pair.replay_backward([gradients[position] for position in ctx.differentiable])
        return None, None, None, *computed


def _with_layout_of(gradient: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a result, copied if its strides or dtype differ from those in the backward capture.

    For example, if the user sums a result, autograd passes a gradient of one expanded element.
    """
    if gradient.stride() == result.stride() and gradient.dtype == result.dtype:
        return gradient
    return torch.empty_like(result).copy_(gradient)


def _refuse_mutations(plan: GraphPlan, needs: Sequence[int]) -> None:
    for index in needs:
        if index in plan.mutated:
            name = plan.inputs[index].name
            raise UsageError(f"the function mutates its argument {name}, which requires grad\n  let it change a copy instead")
