"""A runtime for tests that emulates CUDA graphs on the CPU, and fails where CUDA would.

A capture records the operators that run, with the memory of their arguments, and leaves no effects: outputs hold garbage, and
mutated tensors are restored. A graph keeps only tensors alive that were allocated in its capture. A replay runs the operators
again, but no Python code: it reads the memory of the captured inputs, stale unless new inputs were copied to it, and writes
outputs to the captured addresses. Random numbers continue from the RNG state of the caller. After a replay, intermediate
tensors hold garbage, since other graphs of the pool use their memory, and so do the outputs of graphs that were captured later
in the pool. Reading the value of a tensor in a capture is an error, since a device would not have computed it yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence, Set
from contextlib import nullcontext
from threading import get_ident
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from dynx._reading.tensors import tensors_in
from dynx._reading.user_location import call_site
from dynx._torch.ops.cuda_graphs import report_as_capturing
from dynx._torch.ops.liveness import WeakMemory, uses_of_memory
from dynx.cudagraphs._operator_mode import OperatorMode
from dynx.cudagraphs._runtime.capture_lock import capture_lock, capturing_threads, exclusive_capture
from dynx.cudagraphs._runtime.emulated_rng import RngStates
from dynx.cudagraphs._runtime.failures import Failure, NameFailures, failure_of
from dynx.cudagraphs._runtime.interface import Capturable, Copy, Run, SelectClones, no_clones
from dynx.cudagraphs._runtime.memcpy import copy_of, find_copies, run_with_copies
from dynx.cudagraphs._runtime.patching.pointer_scan import NotPatchable
from dynx.cudagraphs._runtime.rng_errors import SEED_OF_CAPTURES, check_generators
from dynx.errors import CaptureFailed, UsageError
from dynx.records import Location


class Emulator:
    """The runtime that emulates CUDA graphs on the CPU: a capture records operators, and a replay runs them again."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self._pool = self.new_pool("")

    def warm_up(self, function: Callable[[], Any]) -> Any:
        return function()

    def is_warmed_up(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return get_ident() in capturing_threads

    def can_set_memcpy_nodes(self) -> bool:
        return True

    def new_pool(self, what: str) -> list[EmulatedGraph]:
        return []

    def capture(
        self,
        function: Capturable,
        sources: Sequence[torch.Tensor] = (),
        select_clones: SelectClones = no_clones,
        pool: list[EmulatedGraph] | None = None,
        generators: Sequence[torch.Generator] = (),
        forward: EmulatedGraph | None = None,
    ) -> EmulatedGraph:
        with capture_lock():  # all threads share the RNG state, which is restored at the end
            rng_state, states = torch.get_rng_state(), [generator.get_state() for generator in generators]
            torch.clear_autocast_cache()  # as for CUDA
            try:
                if forward is None:
                    torch.default_generator.manual_seed(SEED_OF_CAPTURES)  # else functions could set the current seed unnoticed
                else:
                    torch.set_rng_state(forward.captured_states.last)
                recorder = _Recorder(None if forward is None else forward.captured_states, generators)
                with exclusive_capture(), report_as_capturing(self.is_capturing), recorder, NameFailures():
                    results = run_with_copies(function, sources, select_clones)
                recorder.rng_states.end(rng_state)
            except CaptureFailed:
                raise
            except RuntimeError as error:  # such as out of memory, as for CUDA
                raise failure_of(error, "the capture in dynx's emulator of CUDA graphs") from error
            finally:
                torch.clear_autocast_cache()
                torch.set_rng_state(rng_state)
                for generator, state in zip(generators, states, strict=True):
                    generator.set_state(state)
                recorder.restore_memory()
        graph = EmulatedGraph(recorder, *results, self._pool if pool is None else pool, forward)
        del recorder  # and with it tensors that the graph does not keep alive
        graph.check_reads()
        return graph

    def capture_patched(
        self,
        function: Capturable,
        inputs: Sequence[torch.Tensor],
        select_clones: SelectClones,
        pool: list[EmulatedGraph] | None,
    ) -> EmulatedGraph:
        own_inputs = [copy_of(tensor) for tensor in inputs]
        captured = self.capture(lambda _: function(own_inputs), select_clones=select_clones, pool=pool)
        own_storages = [_storage(tensor) for tensor in own_inputs]
        if any(_storage(output) in own_storages for output in tensors_in(captured.outputs)):
            raise NotPatchable("an output of the graph aliases an input, so its address cannot be patched")
        if captured.uses_memory_of(inputs):
            raise NotPatchable("the captured function also reads an argument's tensor through a global, attribute or closure")
        captured.patch_inputs(own_inputs)
        rng_state = torch.get_rng_state()
        captured.set_sources([tensor.clone() for tensor in inputs])
        captured.set_targets([torch.empty_like(output) for output in select_clones(captured.outputs)])
        captured.replay()
        if not torch.equal(rng_state, torch.get_rng_state()):
            torch.set_rng_state(rng_state)
            raise NotPatchable("the graph draws random numbers, so patched pointers cannot be verified by replaying it")
        return captured


_COPY = torch.ops.aten.copy_.default


class _Step(NamedTuple):
    """An operator call that a capture recorded, with its arguments and the memory of its results."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad_enabled: bool  # some operators return more results with gradients enabled
    is_inference: bool  # whether it ran in inference mode
    rng_index: int | None  # of the RNG state that it draws from; None for an operator that draws no random numbers
    results: tuple[tuple[int, torch.Tensor], ...]  # index and memory of each result that is not a view of an argument
    location: Location | None  # of the user's line, if the operator creates a tensor from Python data (lift_fresh)


class EmulatedGraph:
    """The emulation of a captured graph: the operators of a capture, and the tensors that they run on."""

    def __init__(
        self,
        recorder: _Recorder,
        outputs: Any,
        copies: Sequence[Copy],
        clones: Sequence[Copy],
        pool: list[EmulatedGraph],
        forward: EmulatedGraph | None,
    ) -> None:
        steps, self._constants, self._forward = recorder.steps, list(recorder.constants.values()), forward
        self.captured_states = self._replayed_states = recorder.rng_states  # of the capture, and of the last replay
        copy_steps = [(index, step.args) for index, step in enumerate(steps) if step.operator is _COPY]
        copy_at = {(args[0].data_ptr(), args[1].data_ptr()): index for index, args in copy_steps}
        self._copies, self._clones = find_copies(copy_at, copies), find_copies(copy_at, clones)
        self._sources: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._patched_inputs: list[int] = []  # addresses of the captured inputs, if they are patched instead of copied
        self.outputs = outputs
        output_storages = {_storage(tensor) for tensor in tensors_in(outputs)}
        allocated = [tensor for step in steps for _, tensor in step.results]
        self._intermediates = [tensor for tensor in allocated if _storage(tensor) not in output_storages]
        self._output_memory = [tensor for tensor in allocated if _storage(tensor) in output_storages]
        self._pool, self._index_in_pool = pool, len(pool)
        kept = {_storage(tensor) for tensor in allocated} | recorder.constants.keys()
        self._steps: list[_Step] | None = [
            step._replace(args=_to_weak(step.args, kept), kwargs=_to_weak(step.kwargs, kept)) for step in steps
        ]
        distinct = {id(tensor): tensor for tensor in tensors_in((self._steps, outputs))}
        self._own_uses = Counter(map(_storage, distinct.values()))
        self._kept = {_storage(tensor) for tensor in self._intermediates}  # memory in use, which no other tensor gets
        pool.append(self)
        for graph in pool:
            graph.forget_freed()
        _fill_with_garbage(allocated, integers=0)  # 0 for integers: the capture of the backward pass may index with them

    def patch_inputs(self, inputs: Sequence[torch.Tensor]) -> None:
        """Make replays read the tensors of `set_sources`, not `inputs`. Fills `inputs` with garbage, to detect reads."""
        self._patched_inputs = [_storage(tensor) for tensor in inputs]
        _fill_with_garbage(inputs)

    def check_reads(self) -> None:
        """Raise CaptureFailed if an operator reads a freed tensor that Python code created: a replay could not create it again.

        CUDA rejects this too: a capture cannot copy `torch.tensor(data)` to the device, since its memory is not pinned.
        """
        for step in self._steps or ():
            if any(isinstance(leaf, WeakMemory) and not leaf.is_alive() for leaf in tree_leaves((step.args, step.kwargs))):
                text = f"{step.operator} reads a tensor that Python code created, which a replay would not create again"
                raise Failure(text, step.location).error()

    def uses_memory_of(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether an operator of the graph has an argument in the memory of one of the tensors."""
        storages = {_storage(tensor) for tensor in tensors}
        leaves = (leaf for step in self._steps or () for leaf in tree_leaves((step.args, step.kwargs)))
        return any(isinstance(leaf, WeakMemory) and leaf.address in storages for leaf in leaves)

    def set_sources(self, tensors: Sequence[torch.Tensor]) -> None:
        if not self._patched_inputs:
            self._check_layouts(self._copies, 0, tensors)
        self._sources = list(tensors)

    def set_targets(self, tensors: Sequence[torch.Tensor]) -> None:
        self._check_layouts(self._clones, 1, tensors)
        self._targets = list(tensors)

    def _check_layouts(self, copies: Sequence[int], fixed_end: int, tensors: Sequence[torch.Tensor]) -> None:
        """Raise CaptureFailed if a tensor cannot replace the source or target of a captured copy, since its layout differs.

        `copies` are the indices of the captured `copy_` operators, one for each tensor. `fixed_end` is the index of the operand
        that is not replaced: 0 for the target, 1 for the source.
        """
        assert self._steps is not None
        for index, tensor in zip(copies, tensors, strict=True):
            fixed = _to_tensors(self._steps[index].args[fixed_end])
            if (fixed.size(), fixed.stride(), fixed.dtype) != (tensor.size(), tensor.stride(), tensor.dtype):
                raise CaptureFailed("a memcpy node cannot copy a tensor with other sizes, strides or dtype than in the capture")

    def replay(self) -> None:
        steps, sources, targets = self._steps, self._sources, self._targets
        if steps is None:
            raise CaptureFailed("a captured graph was replayed after close() had released it\n  call the function again")
        if get_ident() in capturing_threads:
            raise CaptureFailed("a graph was replayed while another graph was captured in the same thread")
        with torch.no_grad():
            if (len(self._patched_inputs) or len(self._copies)) > len(sources) or len(self._clones) > len(targets):
                raise CaptureFailed("a graph was replayed before its input and output tensors were set for this call")
            patched = dict(zip(self._patched_inputs, sources, strict=True)) if self._patched_inputs else {}
            copy_args = {index: (steps[index].args[0], source) for index, source in zip(self._copies, sources, strict=False)}
            copy_args |= {index: (target, steps[index].args[1]) for index, target in zip(self._clones, targets, strict=True)}
            self._sources, self._targets = [], []
            forward = None if self._forward is None else self._forward._replayed_states
            rng_states = self._replayed_states = RngStates(forward)
            for number, value in self._constants:  # operators of the last replay may have mutated them
                number.copy_(value)
            for step_index, step in enumerate(steps):
                args = copy_args.get(step_index, step.args)
                if step.rng_index is not None:
                    rng_states.restore(step.rng_index)
                with torch.inference_mode() if step.is_inference else nullcontext(), torch.set_grad_enabled(step.grad_enabled):
                    leaves = tree_leaves(step.operator(*_to_tensors(args, patched), **_to_tensors(step.kwargs, patched)))
                if step.rng_index is not None:
                    rng_states.append_current()
                for index, result in step.results:
                    with torch.inference_mode(result.is_inference()):
                        result.copy_(leaves[index])
            if self.captured_states.changes:  # only then: other threads share it and may have drawn numbers
                rng_states.restore(self.captured_states.final_index)
            rng_states.last = torch.get_rng_state()
            _fill_with_garbage([tensor for tensor in self._intermediates if _storage(tensor) not in self._kept])
            if self._intermediates:  # later graphs of the pool may have reused their memory
                later_graphs = self._pool[self._index_in_pool + 1 :]
                _fill_with_garbage([tensor for graph in later_graphs for tensor in graph._output_memory])

    def forget_freed(self) -> None:
        """Let later captures in the pool reuse the memory of intermediate tensors that nothing outside of this graph uses.

        Called at the end of each capture in the pool. A use outside of the graph is, for example, an attribute of the `ctx` of
        an autograd function.
        """
        uses = {_storage(tensor): uses_of_memory(tensor) for tensor in self._intermediates}
        self._kept = {storage for storage in self._kept if uses.get(storage, 0) > self._own_uses[storage]}

    def in_order(self, run: Run, tensors: Sequence[torch.Tensor]) -> Run:
        return run  # the CPU has no streams

    def release(self, tensors: Sequence[torch.Tensor]) -> None:
        released = {_storage(tensor) for tensor in tensors}
        self._intermediates += [tensor for tensor in self._output_memory if _storage(tensor) in released]
        self._output_memory = [tensor for tensor in self._output_memory if _storage(tensor) not in released]

    def raw_cuda_graph(self) -> int:
        raise UsageError("the emulator has no CUDA graph\n  capture with runtime='cuda' to use raw graphs")

    def instantiate(self) -> None:
        self.raw_cuda_graph()

    def close(self) -> None:
        """Release all tensors of the graph; pool memory that other tensors use stays valid, as on CUDA."""
        self._steps = self.outputs = None
        self._intermediates = []
        self._output_memory = []


class _Recorder(OperatorMode):
    """A dispatch mode that records the operators of a capture, and copies their arguments' memory to restore it later."""

    def __init__(self, forward: RngStates | None, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.steps: list[_Step] = []
        # tensors made from Python numbers, which CUDA captures as numbers: by the address of their memory, each with a copy
        self.constants: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}  # by address: a storage and its copy
        self.rng_states, self._generators = RngStates(forward), [torch.default_generator, *generators]

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        check_generators(operator, args, kwargs, self._generators)
        if _reads_a_value(operator, args):
            raise CaptureFailed(f"{operator} reads a value of a tensor, but a capture computes no values")
        if operator is torch.ops.aten.lift_fresh.default and args[0].dim() == 0:
            self.constants[_storage(args[0])] = args[0], args[0].clone()
        if operator is torch.ops.aten.fill_.Tensor and _storage(args[1]) in self.constants:
            operator, args = torch.ops.aten.fill_.Scalar, (args[0], args[1].item())  # CUDA captures it as a number
        inputs = {_storage(tensor): tensor for tensor in tensors_in((args, kwargs))}
        for tensor in inputs.values():  # all of them: batch_norm mutates arguments that its schema does not declare as mutated
            if _storage(tensor) not in self._before:
                self._before[_storage(tensor)] = tensor.untyped_storage(), tensor.untyped_storage().clone()
        if torch.Tag.inplace_view in _tags(operator):  # changes only the shape, without a kernel
            return operator(*args, **kwargs)
        args_before, kwargs_before = _with_current_layout(args), _with_current_layout(kwargs)
        grad_enabled, is_inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        rng_state, location = torch.get_rng_state(), call_site() if operator is torch.ops.aten.lift_fresh.default else None
        out = operator(*args, **kwargs)
        rng_index = self.rng_states.record_draw(rng_state)
        results = tuple(
            (index, _with_current_layout(leaf))
            for index, leaf in enumerate(tree_leaves(out))
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and _storage(leaf) not in inputs
        )
        self.steps.append(_Step(operator, args_before, kwargs_before, grad_enabled, is_inference, rng_index, results, location))
        return out

    def restore_memory(self) -> None:
        """Restore the contents that the memory of operators' arguments had before the capture."""
        for storage, before in self._before.values():
            storage.copy_(before)


def _reads_a_value(operator: Any, args: tuple[Any, ...]) -> bool:
    if operator is torch.ops.aten.index.Tensor:  # the size of the result depends on the values of a mask
        return any(index.dtype in (torch.bool, torch.uint8) for index in tensors_in(args[1]))
    return torch.Tag.data_dependent_output in _tags(operator) or torch.Tag.dynamic_output_shape in _tags(operator)


def _tags(operator: Any) -> Container[torch.Tag]:
    return getattr(operator, "tags", ())  # higher-order operators have no tags


def _with_current_layout(values: Any) -> Any:
    """Return `values` with tensors detached, so that they keep their layout if `squeeze_` changes the originals in place."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), values)


def _to_weak(arguments: Any, kept: Set[int]) -> Any:
    """Replace tensors in an operator's arguments by weak references, except in storages whose addresses are in `kept`.

    Quantized tensors are not replaced. Empty tensors, which have no memory to refer to, are replaced by new empty tensors.
    """

    def weak(tensor: torch.Tensor) -> Any:
        if _storage(tensor) in kept or tensor.is_quantized:  # scales are not in the memory
            return tensor
        return WeakMemory(tensor) if tensor.numel() else torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)

    return tree_map_only(torch.Tensor, weak, arguments)


def _to_tensors(arguments: Any, patched: Mapping[int, torch.Tensor] = MappingProxyType({})) -> Any:
    """Replace weak references in an operator's arguments by tensors; `patched`: new inputs by address in the capture."""
    return tree_map_only(WeakMemory, lambda memory: _tensor_at(memory, patched), arguments)


def _tensor_at(memory: WeakMemory, patched: Mapping[int, torch.Tensor]) -> torch.Tensor:
    if memory.address in patched:
        return memory.over(patched[memory.address])
    tensor = memory.tensor()
    if tensor is None:
        raise CaptureFailed("a graph was replayed that reads the memory of a freed tensor\n  keep a reference to the tensor")
    return tensor


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _fill_with_garbage(tensors: Sequence[torch.Tensor], integers: int | None = None) -> None:
    """Fill tensors with NaN, or integers with `integers` (default: the largest value), so that tests detect reads of them."""
    for tensor in tensors:
        with torch.no_grad(), torch.inference_mode(tensor.is_inference() or torch.is_inference_mode_enabled()):
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.fill_(float("nan"))
            elif tensor.dtype is not torch.bool and not tensor.is_quantized:
                tensor.fill_(torch.iinfo(tensor.dtype).max if integers is None else integers)
