"""RNG states of CUDA generators in captures and in replays.

During a capture, the offset of torch's generator counts the random numbers that are drawn since the beginning of the graph,
where the offset is 0. A replay adds the current offset of the generator, and advances the generator by the offset at the end of
the capture. An activation checkpoint saves the offset in the forward graph and restores it in the backward graph, but the
generator has another offset when the backward graph is replayed. So the backward graph is captured with a generator state of
its own; each replay sets it to the state before the last replay of the forward graph.

If the captured function sets a seed, the capture has to fail, since replays would not set it. Torch raises only if that seed
differs from the seed of the generator. So generators get a random seed during captures, which the function will not happen to
set. It has no effect on replays, which use the seed that the generator has at that time.

See `CUDAGeneratorImpl` in torch: `get_offset` raises in a capture, while `get_state` does not. If the offset is 0 at the end of
a capture, a replay does not set the seed and offset that kernels read, even if the graph draws numbers (torch 2.11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dynx.cudagraphs._operator_mode import OperatorMode
from dynx.cudagraphs._runtime.rng_errors import SEED_OF_CAPTURES, SEED_WAS_SET, check_generators
from dynx.errors import CaptureFailed


class DrawWatch(OperatorMode):
    """A dispatch mode that notes where operators draw in a capture: the offsets in the generator's sequence of random numbers.

    Args:
        generators: The generators that are registered with the graph, first the default generator of the device.
        begin: The offset at the beginning of the capture; for a backward pass that may repeat draws of the forward pass, an
            offset after all of these draws, so that only repeated draws have smaller offsets.

    Attributes:
        offsets: The offset before each draw.
        known: Offsets that are valid for a draw at or after `begin`: `begin`, and the offset after each draw.
        was_restored: Whether the function set the offset, as activation checkpoints do before recomputation.

    Raises:
        CaptureFailed: An operator draws after a seed or state from outside of the capture was set, or from a generator that is
            not registered.
    """

    def __init__(self, generators: Sequence[torch.Generator], begin: int) -> None:
        super().__init__()
        self._generator, self._registered, self._begin = generators[0], generators, begin
        self.known, self._last = {begin}, begin
        self.offsets: list[int] = []
        self.was_restored = False

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        check_generators(operator, args, kwargs, self._registered)
        before = offset_of(self._generator)
        out = operator(*args, **kwargs)
        after = offset_of(self._generator)
        self.was_restored |= before != self._last
        self._last = after
        if after != before:
            if before >= self._begin and before not in self.known:
                raise CaptureFailed(SEED_WAS_SET)
            self.known.add(after)
            self.offsets.append(before)
        return out


def offset_of(generator: torch.Generator) -> int:
    """Return the offset of a CUDA generator, also in a capture."""
    return int.from_bytes(bytes(generator.get_state().tolist()[8:]), "little")


def set_offset(generator: torch.Generator, offset: int) -> None:
    """Set the offset of a CUDA generator, also in a capture."""
    seed = generator.get_state().tolist()[:8]
    generator.set_state(torch.tensor([*seed, *offset.to_bytes(8, "little")], dtype=torch.uint8))


class SeedlessGraph(torch.cuda.CUDAGraph):
    """A CUDA graph whose capture fails if the captured function sets the seed of one of its generators.

    Attributes:
        generators: The generators that the function may draw from.
    """

    generators: Sequence[torch.Generator] = ()

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        self._before = [(generator.initial_seed(), generator.get_offset()) for generator in self.generators]
        for generator in self.generators:
            generator.manual_seed(SEED_OF_CAPTURES)
        super().capture_begin(*args, **kwargs)

    def capture_end(self) -> None:
        try:
            super().capture_end()
        finally:
            for generator, (seed, offset) in zip(self.generators, self._before, strict=True):
                generator.manual_seed(seed).set_offset(offset)


@contextmanager
def own_state(generator: torch.Generator) -> Iterator[None]:
    """Replace the state of a device's default generator by a copy within the context, so that a capture uses the copy."""
    before = generator.graphsafe_get_state()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        yield
    finally:
        generator.graphsafe_set_state(before)


class Draws:
    """The random numbers that a captured graph draws.

    Args:
        generators: First a generator that shares the state of the default generator in the capture, then the registered
            generators.
        watch: The dispatch mode that noted the draws from the default generator during the capture.
        end: The offset of the default generator at the end of the capture.

    Attributes:
        after: The first offset after all numbers that the graph draws; 0 if it draws none.
        start: Seed and offset of the default generator before the last replay; set only by replays through `noting_start`.
    """

    def __init__(self, generators: Sequence[torch.Generator], watch: DrawWatch, end: int) -> None:
        self.generators, self.end = generators, end
        self.offsets, self.was_restored = watch.offsets, watch.was_restored
        self.after = max(*watch.known, end)
        self.start = 0, 0

    @property
    def are_bare(self) -> bool:
        """Whether replays need no generator state: the graph draws nothing, and only the default generator is registered."""
        return not self.offsets and not self.end and len(self.generators) == 1

    def repeat(self, forward: Draws) -> set[bool]:
        """Return a set that says whether the draws of this graph repeat draws of the forward pass.

        The set is {True} if all draws repeat such a draw, {False} if none does, {True, False} if only some do. For a graph
        without draws, the set is {True} if the graph restores an offset, else empty.
        """
        return {offset < forward.after for offset in self.offsets} or ({True} if self.was_restored else set())

    def noting_start(self, replay: Callable[[], None]) -> Callable[[], None]:
        """Return a function that stores the state of the default generator in `start`, then replays the graph."""
        generator = self.generators[0]

        def replay_and_note() -> None:
            self.start = generator.initial_seed(), generator.get_offset()
            replay()

        return replay_and_note

    def drawing_again(self, replay: Callable[[], None], forward: Draws) -> Callable[[], None]:
        """Return a function that replays the graph with the random numbers that the forward pass drew in its last replay."""
        generator = self.generators[0]

        def replay_again() -> None:
            seed, offset = forward.start
            generator.manual_seed(seed).set_offset(offset)
            replay()

        return replay_again

    def advancing(self, replay: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays the graph; it restores the offset if the captured function did so after its draws."""
        if self.end or not self.offsets:
            return replay
        generator = self.generators[0]

        def replay_and_restore() -> None:
            offset = generator.get_offset()
            replay()
            generator.set_offset(offset)

        return replay_and_restore
