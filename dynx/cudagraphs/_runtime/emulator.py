"""A CUDA graph on the CPU, for tests: it fails where CUDA would.

A capture writes down the operators that run, with the memory they ran on, and executes nothing that lasts: outputs hold
garbage and what was changed is put back. A replay runs the operators on that very memory, so what was not copied there is
stale; it keeps none alive but what was made in it; results are written to the same addresses. Random numbers go on from those
of the caller. What is in between is garbage afterwards, as memory of a pool that others use, and so are the results of graphs
that were captured later in that pool. Python does not run again. Reading a value is refused, as on a device that has not run
yet.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from threading import get_ident
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dynx._torch.ops.liveness import WeakMemory
from dynx.cudagraphs._runtime.capture_lock import capturing, underway
from dynx.cudagraphs._runtime.interface import Copied, Copy, Function, no_results
from dynx.cudagraphs._runtime.memcpy import copies_among, copy_of, run_with_copies
from dynx.cudagraphs._runtime.pointer_scan import NotPatchable
from dynx.errors import CaptureFailed, UsageError


class Emulator:
    """Captures on the CPU."""

    device = torch.device("cpu")

    def warm_up(self, function: Callable[[], Any]) -> Any:
        return function()

    def is_warm(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return get_ident() in underway

    def copies_in_graph(self) -> bool:
        return True

    def __init__(self) -> None:
        self._pool = self.new_pool()

    def new_pool(self) -> list[EmulatedGraph]:
        return []

    def capture(
        self, function: Function, sources: Sequence[torch.Tensor] = (), results: Copied = no_results, pool: Any = None
    ) -> EmulatedGraph:
        recorder = _Recorder()
        torch.clear_autocast_cache()  # as for CUDA
        state = torch.get_rng_state()
        try:
            with capturing(), recorder:
                outputs, copies, handed = run_with_copies(function, sources, results)
            chance = recorder.chances.place()
        except CaptureFailed:
            raise
        except RuntimeError as error:  # as of CUDA, such as out of memory
            raise CaptureFailed(f"the emulator did not capture it: {error}") from error
        finally:
            torch.clear_autocast_cache()
            torch.set_rng_state(state)
            recorder.put_back()
        graph = EmulatedGraph(recorder.steps, chance, outputs, copies, handed, self._pool if pool is None else pool)
        del recorder
        graph.check()
        return graph

    def capture_reading(
        self, function: Callable[[Sequence[torch.Tensor]], Any], inputs: Sequence[torch.Tensor], results: Copied, pool: Any
    ) -> EmulatedGraph:
        own = [copy_of(each) for each in inputs]
        captured = self.capture(lambda _: function(own), results=results, pool=pool)
        if any(_storage(each) == _storage(mine) for each in _tensors(captured.outputs) for mine in own):
            raise NotPatchable("a result lies in an input")
        if captured.touches(inputs):
            raise NotPatchable("it finds an input by another way too")
        captured.reads(own)
        state = torch.get_rng_state()
        captured.set_sources([each.clone() for each in inputs])
        captured.set_targets([torch.empty_like(each) for each in results(captured.outputs)])
        captured.replay()
        if not torch.equal(state, torch.get_rng_state()):
            torch.set_rng_state(state)
            raise NotPatchable("it draws random numbers")
        return captured


_COPY = torch.ops.aten.copy_.default


class _Step(NamedTuple):
    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    has_gradients: bool  # on: some operators give more then
    chance: int | None  # after how many draws random numbers go on from; None where it draws none
    results: tuple[tuple[int, torch.Tensor], ...]  # that are no views of arguments: position, where to write


class EmulatedGraph:
    """Operators, and the tensors they run on."""

    def __init__(
        self,
        steps: list[_Step],
        chance: int,
        outputs: Any,
        copies: Sequence[Copy],
        handed: Sequence[Copy],
        pool: list[EmulatedGraph],
    ) -> None:
        self._chance = chance  # what it leaves
        found = [(_addresses(step), number) for number, step in enumerate(steps) if step.operator is _COPY]
        self._copies, self._handed = copies_among(found, copies), copies_among(found, handed)
        self._sources: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._inputs: list[int] = []  # addresses, where it reads inputs without a copy
        self.outputs = outputs
        kept = {_storage(each) for each in _tensors(outputs)}
        made = [each for step in steps for _, each in step.results]
        self._between = [each for each in made if _storage(each) not in kept]
        self._lasting = [each for each in made if _storage(each) in kept]
        self._pool, self._age = pool, len(pool)
        pool.append(self)
        own = {_storage(each) for each in made}
        self._steps: list[_Step] | None = [
            step._replace(args=_weakly(step.args, own), kwargs=_weakly(step.kwargs, own)) for step in steps
        ]
        _spoil(made, integers=0)  # with which the backward pass is captured: they may be indices

    def reads(self, inputs: Sequence[torch.Tensor]) -> None:
        """Have it read other tensors than these, which are garbage from now on."""
        self._inputs = [_storage(each) for each in inputs]
        _spoil(inputs)

    def check(self) -> None:
        """Refuse what reads memory that was made without the device, and is gone: CUDA does not copy from there."""
        for step in self._steps or ():
            if any(isinstance(each, WeakMemory) and not each.is_there() for each in tree_leaves((step.args, step.kwargs))):
                raise CaptureFailed(f"{step.operator} reads a tensor that Python made: it would be made once only")

    def touches(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Tell whether an operator is given memory of some tensors."""
        memory = {_storage(each) for each in tensors}
        found = (leaf for step in self._steps or () for leaf in tree_leaves((step.args, step.kwargs)))
        return any(isinstance(leaf, WeakMemory) and leaf.address in memory for leaf in found)

    def set_sources(self, tensors: Sequence[torch.Tensor]) -> None:
        if not self._inputs:
            self._check_layouts(self._copies, 0, tensors)
        self._sources = list(tensors)

    def set_targets(self, tensors: Sequence[torch.Tensor]) -> None:
        self._check_layouts(self._handed, 1, tensors)
        self._targets = list(tensors)

    def _check_layouts(self, copies: Sequence[int], other_end: int, tensors: Sequence[torch.Tensor]) -> None:
        assert self._steps is not None
        for number, tensor in zip(copies, tensors, strict=True):
            other = _strongly(self._steps[number].args[other_end])
            if (other.size(), other.stride(), other.dtype) != (tensor.size(), tensor.stride(), tensor.dtype):
                raise CaptureFailed("a copy in a graph reads bytes: another layout would be misread")

    def replay(self) -> None:
        if self._steps is None:
            raise CaptureFailed("a graph was replayed after it was closed")
        if get_ident() in underway:
            raise CaptureFailed("a graph was replayed while another was captured")
        with torch.no_grad():
            asked = len(self._inputs) or len(self._copies)
            if asked > len(self._sources) or len(self._handed) > len(self._targets):
                raise CaptureFailed("a graph was replayed that copies from or to memory of an earlier call")
            moved = dict(zip(self._inputs, self._sources, strict=True)) if self._inputs else {}
            told = {
                number: (self._steps[number].args[0], each) for number, each in zip(self._copies, self._sources, strict=False)
            }
            told |= {
                number: (each, self._steps[number].args[1]) for number, each in zip(self._handed, self._targets, strict=True)
            }
            self._sources, self._targets = [], []
            chances = Chances()
            for number, step in enumerate(self._steps):
                args = told.get(number, step.args)
                if step.chance is not None:
                    chances.go_on_from(step.chance)
                with torch.set_grad_enabled(step.has_gradients):
                    found = tree_leaves(step.operator(*_strongly(args, moved), **_strongly(step.kwargs, moved)))
                if step.chance is not None:
                    chances.note()
                for position, result in step.results:
                    result.copy_(found[position])
            chances.go_on_from(self._chance)
            _spoil(self._between)
            if self._between:  # the memory of which was free when these were captured
                _spoil([each for later in self._pool[self._age + 1 :] for each in later._lasting])

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        given = {_storage(each) for each in tensors}
        self._between += [each for each in self._lasting if _storage(each) in given]
        self._lasting = [each for each in self._lasting if _storage(each) not in given]

    def raw(self) -> int:
        raise UsageError("the emulator has no CUDA graph\n  raw graphs are there with runtime='cuda'")

    def instantiate(self) -> None:
        self.raw()

    def close(self) -> None:
        """Let go of everything; memory of a pool that a tensor of somebody else still lies in stays theirs, as on CUDA."""
        self._steps = self.outputs = None
        self._between = []
        self._lasting = []


class _Recorder(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[_Step] = []
        self._constants: dict[int, torch.Tensor] = {}
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # memory, and what was in it
        self.chances = Chances()

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _reads_a_value(operator, args):
            raise CaptureFailed(f"{operator} reads a value, which is not there while a graph is captured")
        if operator is torch.ops.aten.lift_fresh.default and args[0].dim() == 0:
            self._constants[_storage(args[0])] = args[0]
        if operator is torch.ops.aten.fill_.Tensor and _storage(args[1]) in self._constants:
            operator, args = torch.ops.aten.fill_.Scalar, (args[0], args[1].item())  # CUDA takes it as a number
        given = {_storage(each): each for each in _tensors((args, kwargs))}
        for each in given.values():  # all: batch_norm changes what its schema does not say
            if _storage(each) not in self._before:
                self._before[_storage(each)] = each.untyped_storage(), each.untyped_storage().clone()
        if torch.Tag.inplace_view in _tags(operator):  # nothing that a device does
            return operator(*args, **kwargs)
        args_now, kwargs_now = _as_laid_out_now(args), _as_laid_out_now(kwargs)
        has_gradients, before = torch.is_grad_enabled(), torch.get_rng_state()
        out = operator(*args, **kwargs)
        chance = self.chances.drawn(before)
        fresh = tuple(
            (position, _as_laid_out_now(each))
            for position, each in enumerate(tree_leaves(out))
            if isinstance(each, torch.Tensor) and _storage(each) not in given
        )
        self.steps.append(_Step(operator, args_now, kwargs_now, has_gradients, chance, fresh))
        return out

    def put_back(self) -> None:
        for memory, before in self._before.values():
            memory.copy_(before)


def _reads_a_value(operator: Any, args: tuple[Any, ...]) -> bool:
    if operator is torch.ops.aten.index.Tensor:  # reads a mask, to know how many there are
        return any(each.dtype in (torch.bool, torch.uint8) for each in _tensors(args[1]))
    return torch.Tag.data_dependent_output in _tags(operator) or torch.Tag.dynamic_output_shape in _tags(operator)


def _tags(operator: Any) -> Container[torch.Tag]:
    return getattr(operator, "tags", ())  # higher-order ones have none


def _as_laid_out_now(values: Any) -> Any:
    """Give the tensors in new objects: operators such as squeeze_ change the shape of those that the program has."""
    return tree_map(lambda each: each.detach() if isinstance(each, torch.Tensor) else each, values)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _weakly(arguments: Any, own: Container[int]) -> Any:
    """Let go of tensors that the capture did not make."""
    return tree_map(
        lambda each: WeakMemory(each) if isinstance(each, torch.Tensor) and _storage(each) not in own else each, arguments
    )


def _strongly(arguments: Any, moved: Mapping[int, torch.Tensor] = MappingProxyType({})) -> Any:
    return tree_map(lambda each: _found(each, moved) if isinstance(each, WeakMemory) else each, arguments)


def _found(memory: WeakMemory, moved: Mapping[int, torch.Tensor]) -> torch.Tensor:
    if memory.address in moved:
        return memory.elsewhere(moved[memory.address])
    tensor = memory.tensor()
    if tensor is None:
        raise CaptureFailed("a graph was replayed that reads memory which nobody has kept")
    return tensor


def _addresses(step: _Step) -> tuple[int, int]:
    target, source = step.args[:2]
    return target.data_ptr(), source.data_ptr()


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _spoil(tensors: Sequence[torch.Tensor], integers: int | None = None) -> None:
    """Write what nobody would take for a result."""
    with torch.no_grad():
        for each in tensors:
            if each.is_floating_point() or each.is_complex():
                each.fill_(float("nan"))
            elif each.dtype is not torch.bool:
                each.fill_(torch.iinfo(each.dtype).max if integers is None else integers)


class Chances:
    """States of the generator: the one that it began with, and those after each draw.

    A capture may set back one of these, as `checkpoint` does before it computes something again: CUDA does so in the graph.
    """

    def __init__(self) -> None:
        self._states = [torch.get_rng_state()]

    def drawn(self, before: torch.Tensor) -> int | None:
        """Note a draw, if there was one since a state; gives after how many others it was."""
        if torch.equal(before, torch.get_rng_state()):
            return None
        place = self._place_of(before)
        self.note()
        return place

    def note(self) -> None:
        self._states.append(torch.get_rng_state())

    def place(self) -> int:
        """Give after how many draws the next is. Raises CaptureFailed where another seed was set."""
        return self._place_of(torch.get_rng_state())

    def go_on_from(self, place: int) -> None:
        torch.set_rng_state(self._states[place])

    def _place_of(self, state: torch.Tensor) -> int:
        found = next((place for place, each in enumerate(self._states) if torch.equal(each, state)), None)
        if found is None:
            raise CaptureFailed("another seed is set while a graph is captured\n  set it outside")
        return found
