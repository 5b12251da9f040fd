"""One captured graph, with the memory that its inputs are copied to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx._torch.cuda_graphs import address_check
from dynx._torch.liveness import weak_tensor
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._outputs import handing_out
from dynx.cudagraphs._staging import Staging, staging
from dynx.cudagraphs.runtime import Captured, CopiesNotFound, Runtime
from dynx.records.cudagraphs import GraphPlan

Call = Callable[[list[Any]], Sequence[Any]]

_are_at = address_check()


def _captured(
    call: Call, plan: GraphPlan, how: str, runtime: Runtime, given: Sequence[Any]
) -> tuple[list[Any], Staging, Captured]:
    """Capture a graph with memory of its own for inputs; "auto" copies them by hand where CUDA does not take copies."""
    inputs = list(given)
    staged = staging(inputs, plan, how, runtime)
    try:
        return inputs, staged, runtime.capture(lambda: tuple(call(list(inputs))), staged.copies)
    except CopiesNotFound:
        if how != "auto":
            raise
    return _captured(call, plan, "copy", runtime, given)


class Recording:
    """Replays what a graph does with inputs at these addresses and these numbers."""

    def __init__(self, call: Call, plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any]) -> None:
        self._still, self._numbers = list(plan.indices("static", "managed")), plan.indices("scalar")
        self._addresses = [each.data_ptr() if isinstance(each, torch.Tensor) else None for each in args]
        self._expected = [args[index] for index in self._numbers]
        with torch.inference_mode(False), torch.no_grad():  # what is made here is used outside of inference mode too
            # aliases: whether the tensors of the caller are still in use tells when a recording is free
            given = [each.detach() if isinstance(each, torch.Tensor) else each for each in args]
            inputs, staged, captured = _captured(call, plan, config.inputs, runtime, given)
        self._stage, self._in_graph = staged.stage, staged.in_graph
        self.copies, self.bytes_copied = staged.copied, staged.nbytes
        self._set_sources = captured.set_sources
        self._own = [inputs[index] for index in plan.indices("dynamic")]  # a CUDA graph keeps no memory alive
        self.replay, self.close = captured.replay, captured.close
        ours = plan.user_outputs if plan.part == "step" else len(captured.outputs)
        self.also: Sequence[torch.Tensor] = captured.outputs[ours:]
        self._hand_out, self._token = handing_out(captured.outputs[:ours], plan, config.outputs)
        self.held: Any = None  # what must live as long as the recording
        self._pending: Any = None

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether numbers and addresses are those of a call, and nobody needs the last results any more."""
        return (
            (self._pending is None or self._pending.expired())
            and _are_at(args, self._addresses, self._still)
            and all(args[index] == value for index, value in zip(self._numbers, self._expected, strict=True))
        )

    @property
    def is_pending(self) -> bool:
        """Whether a backward pass will still read what the last replay saved."""
        return self._pending is not None and not self._pending.expired()

    def run(self, args: list[Any]) -> list[Any]:
        """Replay with new inputs; `args` is emptied."""
        after = self._stage(args)
        if self._in_graph:
            self._set_sources([args[index] for index in self._in_graph])
        self.replay()
        args.clear()  # what the graph copies must live until it was launched
        if after is not None:
            after()
        outputs = self._hand_out()
        if self._token is not None:
            self._pending = weak_tensor(outputs[self._token])
        return outputs
