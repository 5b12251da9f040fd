"""Compare replays of a forward pass and of its backward pass with an uncaptured run of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._functions.autograd_tape import AutogradTape, sum_of
from dynx.cudagraphs._recording.verification import Memory, Trial
from dynx.cudagraphs._runtime.interface import Run


class PairVerification:
    """A comparison of the first `times` replays of a pair of recordings (forward, then backward pass) with uncaptured runs.

    `new_tape` returns an AutogradTape that runs the function uncaptured. `memory` returns tensors that compiled or custom
    kernels may write to: they are restored after an uncaptured run, and compared. `what` names the function in messages.
    """

    def __init__(self, new_tape: Callable[[], AutogradTape], memory: Memory, what: str, times: int) -> None:
        self._new_tape, self._memory, self._what, self._times = new_tape, memory, what, times
        self._left = times
        self._tape: AutogradTape | None = None  # of the forward pass that was compared last, for its backward pass

    def forward(self, run: Run, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Replay the forward pass, compare its results with those of an uncaptured run, and return the replay's results."""
        self._tape = None
        if self._left == 0:
            return run(tensors)
        self._left -= 1
        inputs = list(tensors)
        trial = Trial(lambda: self._run_uncaptured(inputs), lambda: [*inputs, *self._memory()])
        tape, self._tape = self._tape, None
        outputs = run(tensors)
        goes_on = trial.compare(outputs, self._name("forward"), len(outputs))
        self._left = self._left if goes_on else 0
        self._tape = tape if goes_on and trial.is_exact else None  # else gradients may depend on uninitialized memory
        return outputs

    def _run_uncaptured(self, inputs: list[Any]) -> Sequence[Any]:
        self._tape = self._new_tape()
        return self._tape.forward(list(inputs))

    def backward(
        self, run: Run, gradients: Sequence[torch.Tensor], arguments: int, parameters: Sequence[torch.Tensor] | None
    ) -> list[Any]:
        """Replay the backward pass, compare the gradients with those of an uncaptured run, and return what `run` returns.

        `run` is the replay. `arguments` is the number of arguments that get gradients. `parameters` are those whose `.grad` the
        replay writes itself; None if it returns their gradients.
        """
        tape, self._tape = self._tape, None
        if tape is None:
            return run(gradients)
        written = parameters or ()
        before = [None if param.grad is None else param.grad.clone() for param in written]

        def run_uncaptured() -> list[Any]:
            computed = tape.backward(gradients)
            if parameters is None:
                return computed
            return [*computed[:arguments], *map(sum_of, before, computed[arguments:])]

        trial = Trial(run_uncaptured, lambda: [*gradients, *self._memory()])
        outputs = run(gradients)
        results = outputs if parameters is None else [*outputs[:arguments], *(param.grad for param in written)]
        if not trial.compare(results, self._name("backward"), len(results)):
            self._left = 0
        return outputs

    def _name(self, part: str) -> str:
        return f"replay {self._times - self._left} of the {part} pass of {self._what}"
