"""The state of CUDA's random numbers in a capture, and in replays.

While CUDA captures, torch's generator counts the numbers that are drawn from the beginning of the graph: its offset is 0 there.
A replay adds the offset that the generator has at that time, and advances it by the offset at the end of the capture. An
activation checkpoint saves the offset in the forward graph and restores it in the backward graph, which is replayed when the
generator has another offset: so that graph is captured with a generator state of its own, which a replay sets to the state
that the forward pass began with.

A seed that the captured function sets would be set once, in the capture, and not in replays. Torch raises where a capture sets
another seed than the generator has, and ignores the same one. So generators have a seed in captures that nobody sets. It has no
effect on replays, which use the seed that a generator has then.

Torch: `CUDAGeneratorImpl`, whose `get_offset` is an error in a capture, while `get_state` is not; a replay does not set the
offset of a graph whose offset at the end is 0, whatever it has drawn (2.11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dynx.cudagraphs._runtime.rng_errors import SEED_OF_CAPTURES, SEED_WAS_SET, check_generators
from dynx.errors import CaptureFailed


class DrawWatch(TorchDispatchMode):
    """Notes at which offsets operators draw random numbers in a capture.

    Args:
        generator: The default generator of the device.
        registered: Other generators, which are registered with the graph.
        begin: The offset that the capture begins with: for a backward pass that may draw again, one after all of the forward
            pass.

    Attributes:
        offsets: The offset before each draw.
        known: The offset at the beginning, and those after each draw.
        was_restored: Whether the offset was set to another one, as activation checkpoints do before they compute again.

    Raises:
        CaptureFailed: The state was set to one from outside of the capture, or another generator was used.
    """

    supports_higher_order_operators = True

    def __init__(self, generator: torch.Generator, registered: Sequence[torch.Generator], begin: int) -> None:
        super().__init__()
        self._generator, self._registered, self._begin = generator, [generator, *registered], begin
        self.known, self._last = {begin}, begin
        self.offsets: list[int] = []
        self.was_restored = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # compiled functions run as they do without the mode

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
    """A CUDA graph in whose capture nobody may set the seed of the generators whose numbers it draws.

    Attributes:
        generators: These generators.
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
    """Let the default generator of a device have another state: what is captured draws from that one."""
    before = generator.graphsafe_get_state()
    generator.graphsafe_set_state(generator.clone_state())
    try:
        yield
    finally:
        generator.graphsafe_set_state(before)


class Draws:
    """The random numbers that a captured graph draws.

    Args:
        generators: The default generator with the state that it had in the capture, and others that were registered.
        watch: What was drawn from it.
        end: Its offset at the end of the capture.

    Attributes:
        after: The first offset after all numbers that the graph draws; 0 if it draws none.
        start: Seed and offset of the default generator before the last replay, by `noting_start`.
    """

    def __init__(self, generators: Sequence[torch.Generator], watch: DrawWatch, end: int) -> None:
        self.generators, self.end = generators, end
        self.offsets, self.was_restored = watch.offsets, watch.was_restored
        self.after = max(*watch.known, end)
        self.start = 0, 0

    @property
    def are_bare(self) -> bool:
        """Whether a replay does not depend on any generator."""
        return not self.offsets and not self.end and len(self.generators) == 1

    def repeat(self, forward: Draws) -> set[bool]:
        """Return whether draws repeat those of the forward pass: for each draw True or False, where the graph draws at all."""
        return {offset < forward.after for offset in self.offsets} or ({True} if self.was_restored else set())

    def noting_start(self, replay: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays the graph, and notes what the default generator's state was before."""
        generator = self.generators[0]

        def replay_and_note() -> None:
            self.start = generator.initial_seed(), generator.get_offset()
            replay()

        return replay_and_note

    def drawing_again(self, replay: Callable[[], None], forward: Draws) -> Callable[[], None]:
        """Return a function that replays the graph with the numbers of the last replay of the forward pass."""
        generator = self.generators[0]

        def replay_again() -> None:
            seed, offset = forward.start
            generator.manual_seed(seed).set_offset(offset)
            replay()

        return replay_again

    def advancing(self, replay: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays the graph, and leaves the default generator with the offset that the function did."""
        if self.end or not self.offsets:
            return replay
        generator = self.generators[0]

        def replay_and_restore() -> None:
            offset = generator.get_offset()
            replay()
            generator.set_offset(offset)

        return replay_and_restore
