"""`Config(verify=n)`: compare the first replays of a recording with uncaptured runs of the same calls, byte by byte.

The call first runs uncaptured; then the memory that it wrote to and the RNG states are restored, and the graph is replayed. The
replay has to return the same results, write the same bytes, and leave the same RNG states.

If something differs, two more uncaptured runs show why. The first of them repeats the call: if it differs from the first
uncaptured run, the function is not deterministic. In the second, uninitialized memory has other bytes: values that change
depend on these bytes, and are not compared.

All threads share the default generators. If RNG states differ after the replay while other threads run, an uncaptured run with
other random numbers shows whether the call depends on random numbers at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import active_count, get_ident
from typing import Any

import torch

from dynx.cudagraphs._notices import notify
from dynx.cudagraphs._recording.effects import Effects, differences, text_of
from dynx.cudagraphs._recording.random_states import RandomStates
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._recording.restored_memory import RestoredMemory
from dynx.cudagraphs._recording.uninitialized import Fill, FilledMemory
from dynx.cudagraphs._runtime.capture_lock import trying_threads
from dynx.cudagraphs._runtime.interface import Run
from dynx.cudagraphs._stats import count_verified
from dynx.errors import ReplayDiffers

Memory = Callable[[], Sequence[Any]]


def verified(run: Run, uncaptured: Call, memory: Memory, what: str, times: int, kept: Sequence[Any] = ()) -> Run:
    """Return a function that calls `run`, and compares the first replays with uncaptured runs of the same calls.

    Args:
        run: Replays the recording.
        uncaptured: Runs the function on the inputs of a call; returns its results, followed by tensors like `kept`.
        memory: Returns tensors to which compiled or custom kernels may write.
        what: What is replayed, for messages.
        times: How many replays are compared.
        kept: Further tensors that a replay writes, such as gradients.

    Raises:
        ReplayDiffers: Something differs. Memory and random numbers are left as after the uncaptured run, or as after the
            replay where the uncaptured run raised an exception.
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
        if not trial.compare([*outputs, *kept], f"replay {times - left} of {what}"):
            left = 0
        return outputs

    return run_and_compare


class Trial:
    """An uncaptured run of a call, with which a replay is compared; the effects of the run are undone.

    Args:
        function: The function to run uncaptured; it returns a list of results.
        memory: Returns a list of the tensors to which compiled or custom kernels of the function may write, and of the
            `torch.Generator`s that it uses; other values in the list are ignored.

    Attributes:
        succeeded: Whether the run raised no exception.
        is_exact: Whether everything was compared; False if something depends on uninitialized memory, or on random numbers that
            other threads may have drawn.
    """

    def __init__(self, function: Callable[[], Sequence[Any]], memory: Memory) -> None:
        self._function, self._memory = function, memory
        self._first = self._run("zeros")
        self.succeeded, self.is_exact = self._first.error is None, True

    def _run(self, fill: Fill) -> Effects:
        values, results, error = list(self._memory()), list[Any](), None
        before, gradients = RandomStates.of_now(values), [(leaf, leaf.grad) for leaf in values if _is_leaf(leaf)]
        try:
            with RestoredMemory(values, remembers=True) as memory:
                try:
                    with _on_trial(), FilledMemory(fill):
                        results = _copies(self._function())
                except Exception as raised:  # noqa: BLE001  # of the user's function, which raises nothing in a replay
                    error = raised
                drawn = RandomStates.of_now(values)
        finally:
            before.put_back()
            for leaf, gradient in gradients:  # a replay writes to the tensors that were assigned in the capture
                if leaf.grad is not gradient:
                    leaf.grad = gradient
        return Effects(results, memory.written, drawn, memory.before, before, error)

    def compare(self, results: Sequence[Any], what: str, count: int | None = None) -> bool:
        """Compare this uncaptured run with a replay of the same call, which was made after it and returned `results`.

        Only the first `count` results of the uncaptured run are compared, None for all. Returns whether to compare later
        replays: False, with a DynxWarning, if the uncaptured run ran out of memory, or differs from a second uncaptured run.
        Raises ReplayDiffers if results, memory or RNG states of the replay differ.
        """
        first = self._first._replace(results=self._first.results[:count])
        if isinstance(first.error, torch.OutOfMemoryError):
            return _give_up(what, f"the uncaptured run raises {text_of(first.error)}", "leave out verify")
        drawn = RandomStates.of_now(first.drawn.generators)
        replayed = Effects(list(results), first.written.of_now(), drawn, first.before, first.drawn_before)
        compared, found = replayed, list(differences(first, replayed))
        if found and active_count() > 1 and (shared := sorted(drawn.changed_since(first.drawn))):
            if self._depends_on_random_numbers(first, count):
                replayed.written.put_back()
                self.is_exact = False
                others = f"another thread may have drawn random numbers ({shared[0]}) during the replay"
                notify(f"{what} is not compared: {others}\n  {_ALONE}")
                return True
            replayed.written.put_back()
            compared = replayed._replace(drawn=drawn._replace(states=first.drawn.states))
            found = list(differences(first, compared))
        count_verified()
        if not found:
            return True
        first.undo()
        again = self._run("zeros")
        drawn_again = again.drawn if active_count() == 1 else first.drawn  # others may draw from the same generators
        if changes := list(differences(first, again._replace(results=again.results[:count], drawn=drawn_again))):
            replayed.put_back()
            why = f"two uncaptured runs of the same call differ from each other: {changes[0]}"
            return _give_up(what, why, "call torch.use_deterministic_algorithms(True) while you verify")
        if self.succeeded:
            varied = self._run("garbage")
            found = list(differences(first, compared, varied if varied.error is None else None))
        (first if found and self.succeeded else replayed).put_back()
        self.is_exact = False
        if not found:
            return True
        raise ReplayDiffers(
            f"{what} differs from an uncaptured run of the same call: {'; '.join(found[:_SHOWN])}"
            "\n  pass what changes between calls as an argument: a replay does not run the function's Python code"
        ) from first.error

    def _depends_on_random_numbers(self, first: Effects, count: int | None) -> bool:
        """Return whether a run with other random numbers differs from the first, in its first `count` results or in memory."""
        first.before.put_back()
        other = self._run("zeros")
        return bool(list(differences(first, other._replace(results=other.results[:count], drawn=first.drawn))))


_SHOWN = 3  # differences in a message
_ALONE = "verify it while no other thread runs"


@contextmanager
def _on_trial() -> Iterator[None]:
    """Make recorded functions run uncaptured when this thread calls them inside of the context."""
    trying_threads.append(get_ident())
    try:
        yield
    finally:
        trying_threads.remove(get_ident())


def _give_up(what: str, why: str, advice: str) -> bool:
    """Warn that a recording cannot be verified; return False."""
    notify(f"{what} cannot be verified, and no later replay is compared: {why}\n  {advice}")
    return False


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad


def _copies(results: Sequence[Any]) -> list[Any]:
    """Return the results with copies of their tensors, since these may be views of memory that is restored later."""
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in results]
