"""`Config(verify=n)`: compare the first replays of a recording with uncaptured runs of the same calls, byte by byte.

An uncaptured run comes first. What it has written to memory, and the states of random numbers, are put back to what they were
before; then the graph is replayed, and has to give the same results, write the same to memory, and draw the same numbers.
"""

from __future__ import annotations

import pickle
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import Any, NamedTuple

import torch

from dynx._trace.user_location import user_stacklevel
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._recording.restored_memory import Bytes, RestoredMemory, bytes_in
from dynx.cudagraphs._runtime.capture_lock import trying_threads
from dynx.cudagraphs._runtime.interface import Run
from dynx.cudagraphs._stats import count_verified
from dynx.errors import DynxWarning, ReplayDiffers

Memory = Callable[[], Sequence[Any]]


def verified(run: Run, uncaptured: Call, memory: Memory, what: str, times: int, kept: Sequence[Any] = ()) -> Run:
    """Return a function like `run`, which compares its first replays with uncaptured runs of the same calls.

    Args:
        run: Replays the recording.
        uncaptured: Returns what the function returns for the inputs of a call, and then tensors like `kept`.
        memory: Returns tensors that kernels may write to which are no operators of torch.
        what: What is replayed, for messages.
        times: How many replays are compared.
        kept: Further tensors that a replay writes, such as gradients.

    Raises:
        ReplayDiffers: Something differs. Memory and random numbers are left as after the uncaptured run.
    """
    left = times

    def run_and_compare(args: Sequence[Any]) -> list[Any]:
        nonlocal left
        if left == 0:
            return run(args)
        left -= 1
        inputs = list(args)
        trial = Trial(lambda: uncaptured(inputs), lambda: [*inputs, *memory()])
        outputs = run(args)
        trial.compare([*outputs, *kept], f"replay {times - left} of {what}")
        return outputs

    return run_and_compare


class Trial:
    """An uncaptured run of a call, whose effects are undone.

    Args:
        function: What runs; it returns results.
        memory: Returns tensors that it may write to with kernels that are no operators of torch, and generators that it may
            draw from; other values are ignored.
    """

    def __init__(self, function: Callable[[], Sequence[Any]], memory: Memory) -> None:
        self._function, self._memory = function, memory
        self._first = self._run()

    def _run(self) -> _Effects:
        values = list(self._memory())
        before, gradients = RandomStates.of_now(values), [(leaf, leaf.grad) for leaf in values if _is_leaf(leaf)]
        with RestoredMemory(values, remembers=True) as memory:
            trying_threads.append(get_ident())
            try:
                results = _copies(self._function())
            finally:
                trying_threads.remove(get_ident())
            drawn = RandomStates.of_now(values)
        before.put_back()
        for leaf, gradient in gradients:  # a replay writes to the tensors that were assigned in the capture
            if leaf.grad is not gradient:
                leaf.grad = gradient
        return _Effects(results, memory.written, drawn, memory.before, before)

    def compare(self, results: Sequence[Any], what: str, count: int | None = None) -> None:
        """Raise ReplayDiffers if a replay since then had other results, or wrote or drew something else.

        Where a second uncaptured run differs from the first, a DynxWarning says that instead.

        Args:
            results: Those of the replay.
            what: What was replayed, for messages.
            count: How many results of the uncaptured run are compared; None for all.
        """
        count_verified()
        first = self._first._replace(results=self._first.results[:count])
        drawn = RandomStates.of_now(first.drawn.generators)
        replayed = _Effects(list(results), first.written.of_now(), drawn, first.before, first.drawn_before)
        differences = list(_differences(first, replayed))
        if not differences:
            return
        first.before.put_back()
        first.drawn_before.put_back()
        second = self._run()
        again = list(_differences(first, second._replace(results=second.results[:count])))
        is_same = not again
        (first if is_same else replayed).put_back()
        if is_same:
            raise ReplayDiffers(
                f"{what} differs from an uncaptured run of the same call: {'; '.join(differences[:_SHOWN])}"
                "\n  pass what changes between calls as an argument: a replay does not run the function's Python code"
            )
        warnings.warn(
            f"{what} cannot be verified: two uncaptured runs of the same call differ from each other: {again[0]}"
            "\n  call torch.use_deterministic_algorithms(True) while you verify",
            DynxWarning,
            stacklevel=user_stacklevel(),
        )


_SHOWN = 3  # differences in a message


class _Effects(NamedTuple):
    """What a run returned, the bytes and the states of random numbers that it left, and those before it."""

    results: list[Any]
    written: Bytes
    drawn: RandomStates
    before: Bytes
    drawn_before: RandomStates

    def put_back(self) -> None:
        self.written.put_back()
        self.drawn.put_back()


class RandomStates(NamedTuple):
    """The states of random numbers: of torch for the CPU and each CUDA device, of `random`, of NumPy, and of generators."""

    states: dict[str, Any]
    generators: list[torch.Generator]
    of_generators: list[torch.Tensor]

    @classmethod
    def of_now(cls, values: Sequence[Any]) -> RandomStates:
        states: dict[str, Any] = {
            "torch's, for the CPU": torch.get_rng_state().tolist(),
            "those of Python's random": random.getstate(),
        }
        for number, generator in enumerate(torch.cuda.default_generators if torch.cuda.is_initialized() else ()):
            states[f"torch's, for CUDA device {number}"] = generator.initial_seed(), generator.get_offset()
        if "numpy" in sys.modules:
            states["those of NumPy"] = sys.modules["numpy"].random.get_state(legacy=False)
        generators = [value for value in values if isinstance(value, torch.Generator)]
        return cls(states, generators, [generator.get_state() for generator in generators])

    def put_back(self) -> None:
        states = dict(self.states)
        torch.set_rng_state(torch.tensor(states.pop("torch's, for the CPU"), dtype=torch.uint8))
        random.setstate(states.pop("those of Python's random"))
        if "those of NumPy" in states:
            sys.modules["numpy"].random.set_state(states.pop("those of NumPy"))
        for generator, (seed, offset) in zip(torch.cuda.default_generators, states.values(), strict=False):
            generator.manual_seed(seed).set_offset(offset)
        for generator, state in zip(self.generators, self.of_generators, strict=True):
            generator.set_state(state)


def _differences(expected: _Effects, found: _Effects) -> Iterator[str]:
    """Yield in words what differs between two runs."""
    if len(expected.results) != len(found.results):
        yield f"{len(found.results)} results instead of {len(expected.results)}"
    for index, (value, other) in enumerate(zip(expected.results, found.results, strict=False)):
        if difference := _difference(value, other):
            yield f"result {index}, {difference}"
    own = {value.untyped_storage().data_ptr() for value in found.results if _has_bytes(value)}
    for (storage, value), (_, other) in zip(expected.written.copies, found.written.copies, strict=False):
        if storage.data_ptr() not in own and not torch.equal(_bytes_of(value), _bytes_of(other)):
            yield f"memory of {storage.nbytes()} bytes that the function writes to"
    for what, state in expected.drawn.states.items():
        if pickle.dumps(state) != pickle.dumps(found.drawn.states.get(what, state)):  # texts of arrays are shortened
            yield f"random numbers ({what}) are drawn otherwise"
    if not all(map(torch.equal, expected.drawn.of_generators, found.drawn.of_generators)):
        yield "random numbers of a torch.Generator are drawn otherwise"


def _difference(value: Any, other: Any) -> str:
    """Return in words how two results differ; "" if they are the same."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        is_same = type(value) is type(other) and (value is other or isinstance(value, torch.Tensor) or value == other)
        return "" if is_same else f"{other!r} instead of {value!r}"
    what = f"a {value.dtype} tensor of shape {list(value.shape)}"
    if (value.shape, value.dtype) != (other.shape, other.dtype):
        return f"a {other.dtype} tensor of shape {list(other.shape)} instead of {what}"
    if not _has_bytes(value) or torch.equal(bytes_in(value), bytes_in(other)):
        return ""
    elements = value.ne(other).logical_and_(~(value.isnan() & other.isnan())) if value.is_floating_point() else value.ne(other)
    return f"{what}: {int(elements.sum())} of {value.numel()} elements differ"


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad


def _has_bytes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _copies(results: Sequence[Any]) -> list[Any]:
    """Copy tensors among results: they may be views of memory that is restored."""
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in results]
