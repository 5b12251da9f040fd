"""Capture the calls of a Python function as CUDA graphs and replay them, without a graph from Dynamo."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import RLock, get_ident
from typing import Any, Protocol

import torch
from torch.compiler import is_dynamo_compiling
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten, tree_unflatten

from dynx._torch.autograd.transforms import AD, LEVEL, functions_are_transformed
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.arguments import Arguments, argument_names, arguments_of
from dynx.cudagraphs._functions.first_call import (
    Mutations,
    change_detector,
    liveness_of,
    share_memory,
    storages_of,
    why_not_replayable,
)
from dynx.cudagraphs._functions.replays import FirstCall, Latest, latest_of, with_outputs
from dynx.cudagraphs._notices import notify, warn_or_raise, why_uncaptured
from dynx.cudagraphs._recording.cache import Key, RecordingCache
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._recording.replayable import Call, MakeReplayable, Replayable
from dynx.cudagraphs._recording.restored_memory import RestoredMemory
from dynx.cudagraphs._refusals.python_draws import PythonDraws
from dynx.cudagraphs._refusals.reads_of_grad import ReadsOfGrad
from dynx.cudagraphs._refusals.unrestored import advanced_by
from dynx.cudagraphs._runtime.capture_lock import trying_threads
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._search.code_names import name_of
from dynx.cudagraphs._search.search import Search
from dynx.cudagraphs._state.module_state import State, Unchecked
from dynx.cudagraphs._stats import count_skip, count_uncaptured, skip_of_failure
from dynx.errors import CaptureFailed, UsageError
from dynx.records.cudagraphs import GraphInput, GraphPlan, Part

_DRAW = "draw them on the device with torch, or outside of the function, and pass them as a tensor"
_PASS = "pass the gradient as an argument"
_MOST_KNOWN = 100  # arguments and states whose first call is remembered
_NEVER_REPEATED = 8  # unrecorded states, or keys of deleted objects, after which the user is warned


class RecordedCallable(Protocol):
    """What `fast_path`, `graphed` and `train_step` return: a callable that replays recordings of the user's function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay a recording for these arguments, capture one, or run the function uncaptured; return the function's result."""

    @property
    def recordings(self) -> list[Replayable]:
        """The present recordings: captured CUDA graphs, or pairs of a forward and a backward graph."""

    def close(self) -> None:
        """Release the memory of the recordings; the next calls record again."""


def _no_tensors() -> Sequence[torch.Tensor]:
    return ()


def _never(value: Any = None) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingPolicy:
    """The settings by which `fast_path`, `graphed` and `train_step` differ when they record a function.

    Attributes:
        make: Captures a call, and returns the recording.
        mutable: Returns tensors that the function may mutate, apart from its arguments.
        kept_outputs: Returns tensors, such as gradients, that a recording writes and keeps in addition to its results.
        memory: Returns tensors that a call may write to, apart from its arguments, so that `Config(verify=n)` restores them
            after uncaptured runs; None: the tensors that `mutable` returns.
        is_part_of_state: Returns whether an argument, such as a module, is accepted although it may change: each call compares
            its state, or the user has promised that it stays unchanged.
        original: The object that `copy.deepcopy` and pickle copy instead of the recorded function; None: the captured function.
        advice: Last line of messages about a function that assigns attributes or variables, which a replay would not assign.
        on_replay: Called with the recording after each replay.
        on_switch: Called with a recording when it becomes the one that the next call tries first.
        patches_params: Whether parameters are passed as arguments, so that pointers to them are set before each replay.
    """

    make: MakeReplayable = Recording
    mutable: Callable[[], Sequence[torch.Tensor]] = _no_tensors
    kept_outputs: Callable[[], Sequence[Any]] = _no_tensors
    memory: Callable[[], Sequence[torch.Tensor]] | None = None
    is_part_of_state: Callable[[Any], bool] = _never
    original: Any = None
    advice: str = "return such values as results, or change them outside of the function"
    on_replay: Callable[[Replayable], None] | None = None
    on_switch: Callable[[Replayable], None] | None = None
    patches_params: bool = False


class RecordedFunction:
    """A function whose first call with each argument layout and state runs uncaptured; later calls capture and replay it."""

    def __init__(
        self,
        function: Callable[..., Any],
        part: Part,
        name: str,
        config: Config,
        runtime: Runtime | None,
        state: State,
        policy: RecordingPolicy,
    ) -> None:
        self._function, self._part, self.name = function, part, name
        self.forward = function  # `Search` follows the attribute `forward` of all objects
        self._config, self._runtime, self._state, self._policy = config, runtime, state, policy
        self._lock = RLock()  # reentrant: the function may call itself
        self._cache = RecordingCache[Replayable](config, name, ("its arguments", "its state"), self._lock, self._forget)
        self._first_calls: dict[Key, FirstCall] = {}
        self._latest: Latest | None = None
        self._latest_of: dict[int, Latest] = {}  # by id of the recording
        self._why_uncaptured = ""
        self._times_state_changed = self._times_objects_died = 0
        self._checks_more = False  # whether the state since the last capture has checks that the recording's key lacks
        self._warned: set[str] = set()
        self._draws = PythonDraws()
        self._is_capturing = runtime.is_capturing if runtime is not None else _never
        if runtime is None:
            warn_or_raise(f"there is no CUDA device: {name} runs uncaptured", config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or self._is_capturing() or (trying_threads and get_ident() in trying_threads):
            return self._function(*args, **kwargs)  # part of an outer capture, a Dynamo graph or a trial run
        if AD[LEVEL] >= 0:
            return self._run_transformed(*args, **kwargs)
        with self._lock:
            if (latest := self._latest) is not None:
                match, is_unchanged, run, results = latest
                tensors = match(args, kwargs)
                if tensors is not None and is_unchanged():
                    return results(run(tensors))
            return self._find_or_record(args, kwargs)

    def _run_transformed(self, *args: Any, **kwargs: Any) -> Any:
        """Warn, and run the function uncaptured: a replay would ignore the batches and tangents of a torch.func transform."""
        if self.is_training_step and functions_are_transformed():
            raise UsageError(
                f"{self.name} was called inside of a transform of torch.func, but transforms do not support backward()\n"
                "  call the transform inside of the loss"
            )
        why = "it was called inside of a transform of torch.func, or of forward-mode AD"
        self.warn_once(f"{self.name} runs uncaptured: {why}\n  record the transformed function instead")
        return self.run_uncaptured(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._original, memo)  # recordings belong to the memory of the original

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self._original,)

    @property
    def _original(self) -> Any:
        return self._function if self._policy.original is None else self._policy.original

    def _find_or_record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Handle a call that the latest recording does not fit: replay another recording, capture a new one, or run uncaptured.

        The first call with each combination of argument layouts and state runs uncaptured, as do all calls of a function that
        cannot be captured. Returns the result of the function.
        """
        if functions_are_transformed():
            return self._run_transformed(*args, **kwargs)
        if self._runtime is None or self._why_uncaptured:
            if self._why_uncaptured and self._config.or_error:
                warn_or_raise(self._why_uncaptured, self._config)
            return self.run_uncaptured(*args, **kwargs)
        for recording in self._cache:  # layouts may alternate, and computing the key of all state is slow
            latest = self._latest_of.get(id(recording))
            tensors = latest.match(args, kwargs) if latest is not None else None
            if latest is not None and tensors is not None and latest.is_unchanged():
                self._switch(recording, latest)
                return latest.results(latest.run(tensors))
        arguments = arguments_of(args, kwargs)
        key = (arguments.key, self._state.key())
        if key not in self._first_calls:
            return self._run_first(key, arguments, args, kwargs)
        first = self._first_calls[key]
        if first.mutations is not None and share_memory(arguments.tensors, first.mutations):
            self.warn_once(f"{self.name} runs uncaptured: arguments share memory that it mutates\n  pass copies of them")
            return self.run_uncaptured(*args, **kwargs)
        recorded = self._recording(key, arguments, args, kwargs)
        if recorded is not None and self._checks_more:
            key = self._move(key)
            first = self._first_calls[key]
        if recorded is None:
            if key in self._first_calls:
                return self.run_uncaptured(*args, **kwargs)
            return self._run_first(key, arguments, args, kwargs)
        first = self._first_calls[key] = with_outputs(first, recorded)
        latest = latest_of(recorded, first, arguments, self._state.predicate(), self._policy.on_replay)
        self._switch(recorded, latest)
        return latest.results(latest.run(arguments.tensors))

    def _switch(self, recording: Replayable, latest: Latest) -> None:
        """Make later calls try `recording` first; `latest` holds the checks that these calls have to pass."""
        self._latest = latest
        known = ((id(other), self._latest_of.get(id(other))) for other in self._cache)
        self._latest_of = {address: other for address, other in known if other is not None}
        self._latest_of[id(recording)] = latest
        self._cache.touch(recording)
        if self._policy.on_switch is not None:
            self._policy.on_switch(recording)

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Call the function uncaptured, then record it for these arguments; with `or_error`, raise CaptureError on failure.

        What the calls write to tensors is undone. If a call changes Python state as well, such as the flag of a data-dependent
        initialization, this is undone too and nothing is recorded.
        """
        if self._runtime is not None:
            arguments = arguments_of(args, kwargs)
            for _ in range(2):  # the first call may create a cache that the function keeps
                args, kwargs = tree_unflatten(list(arguments.leaves), arguments.spec)  # new containers, which may be changed
                key = (arguments.key, self._state.key())
                mutable = [tensor for tensor in self._policy.mutable() if not is_lazy(tensor)]
                written = [tensor for tensor in mutable if not isinstance(tensor, torch.nn.Parameter)]
                assignments = self._state.assignments()
                with RestoredMemory(written, remembers=True) as memory:
                    self._run_first(key, arguments, args, kwargs)
                if key not in self._first_calls and not memory.before.equals(memory.written):
                    assignments.undo()  # like the memory: the first call of the user does the initialization
                    self._times_state_changed = 0
                    break
                if key in self._first_calls:
                    self._recording(key, arguments, args, kwargs)
                    key = self._move(key) if self._checks_more else key
                if key in self._first_calls or self._why_uncaptured:
                    break

    def _move(self, key: Key) -> Key:
        """Store the `FirstCall` and the recordings of `key` under a new key of the present state, and return the new key.

        Called if a capture has shown that more values have to be checked than `key` contains.
        """
        new = key[0], self._state.key()
        if key in self._first_calls:
            is_key_valid = liveness_of([self._state.held()])
            self._first_calls[new] = self._first_calls.pop(key)._replace(is_key_valid=is_key_valid)
        self._cache.move(key, new)
        self._checks_more = False
        return new

    def _recording(self, key: Key, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Replayable | None:
        """Return a recording for `key` that no pending backward pass uses; capture one if necessary. None if impossible."""
        first = self._first_calls[key]
        try:
            recording = self._cache.find(key, lambda recording: not recording.is_pending)
            if recording is not None or self._runtime is None or not self._runtime.is_warmed_up():
                return recording
            if not first.is_key_valid():
                del self._first_calls[key]
                self._warn_about_new_objects()
                return None
            self._latest = None  # its recording may be closed to make room
            return self._cache.add(key, lambda: self._record(arguments, first, args, kwargs))
        except CaptureFailed as error:
            self._why_uncaptured = why_uncaptured(self.name, count_skip(skip_of_failure(error)))
            warn_or_raise(self._why_uncaptured, self._config)
            return None

    def run_uncaptured(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function without capturing or replaying it."""
        count_uncaptured()
        if self._runtime is None:
            return self._function(*args, **kwargs)
        return self._runtime.warm_up(lambda: self._function(*args, **kwargs))

    def _run_first(self, key: Key, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a first call uncaptured and return its result; store facts for a recording, such as mutated arguments."""
        assert self._runtime is not None
        names = argument_names(self._function, args, kwargs)
        for name, leaf in zip(names, arguments.leaves, strict=True):
            if isinstance(leaf, torch.Tensor) and leaf.device != self._runtime.device:
                device = self._runtime.device
                raise UsageError(f"argument {name} of {self.name} is on {leaf.device}, not on {device}\n  move it to {device}")
        count = len(arguments.tensors)
        mutable = [tensor for tensor in self._policy.mutable() if not is_lazy(tensor)]
        changed = change_detector([*arguments.tensors, *mutable])
        reads = ReadsOfGrad([*arguments.tensors, *mutable])
        names_in_code = Search(self._function).names if self._is_checked else frozenset[str]()
        # watched only if the code names it: an active mode makes torch.compile recompile
        with reads if "grad" in names_in_code and not self.is_training_step else nullcontext():
            result, draws = self._draws.run(lambda: self.run_uncaptured(*args, **kwargs))
        why = f"it draws {draws}, which a replay would not do\n  {_DRAW}" if draws else ""
        why = f"it reads .grad{reads.found}, which a replay would not read again\n  {_PASS}" if reads.found else why
        if why:
            self._why_uncaptured = f"{self.name} runs uncaptured: {why}"
            warn_or_raise(self._why_uncaptured, self._config)
            return result
        if self._draws.is_suspected:
            return result
        leaves, spec = tree_flatten(result)
        after = arguments_of(args, kwargs)
        if why := why_not_replayable(key[0], arguments, after, names, leaves, self._policy.is_part_of_state, names_in_code):
            self.warn_once(f"{self.name} runs uncaptured: {why}")
            return result
        if what := self._state.changed_by_call(key[1]):
            self._warn_about_changed_state(what)
            return result
        self._times_state_changed = 0
        self._warn_if_rarely_repeated(key)
        indices = changed()
        mutated = frozenset(index for index in indices if index < count)
        is_call = self._part == "call"
        mutations = None
        if indices and count and is_call:
            written = mutable if mutated else [mutable[index - count] for index in indices]
            mutations = Mutations(frozenset(storages_of(written)), bool(mutated))
        is_key_valid = liveness_of([self._state.held(), arguments.others])
        first = FirstCall(mutated, spec, len(leaves), is_call and not indices, mutations, is_key_valid)
        self._first_calls[arguments.key, self._state.key()] = first
        return result

    def _record(self, arguments: Arguments, first: FirstCall, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Replayable:
        assert self._runtime is not None
        names = argument_names(self._function, args, kwargs)
        leaves = zip(names, arguments.leaves, strict=True)
        tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
        inputs = [
            GraphInput(name, "dynamic", "an argument", index in first.mutated, is_fixed=True, nbytes=tensor.nbytes)
            for index, (name, tensor) in enumerate(tensors)
        ]
        plan = GraphPlan(
            self._part,
            tuple(inputs),
            first.outputs,
            returns_all_outputs=False,
            is_pure=first.is_pure,
            patches_params=self._policy.patches_params,
        )

        held, assignments = (self._state.held(), arguments.others), self._state.assignments()  # keys contain ids of `held`
        self._state.begin_capture()

        def call(tensors: list[Any]) -> list[Any]:
            with assignments.reading():
                results, _ = tree_flatten(arguments.call(self._function, tensors))
            return [*results, *self._policy.kept_outputs()]

        def call_on_trial(tensors: Sequence[Any]) -> list[Any]:
            now = self._state.assignments()
            try:
                return call(list(tensors))
            finally:
                now.undo()

        try:
            recording = self._policy.make(call, plan, self._config, self._runtime, arguments.tensors)
        except BaseException:
            assignments.undo()
            raise
        if assigned := assignments.settle():
            recording.close()
            raise CaptureFailed(f"the function assigns {assigned}, which a replay would not do\n  {self._policy.advice}")
        self._checks_more = self._state.end_capture()
        recording.held = held, self._state.held() if self._checks_more else ()
        if self._config.verify:
            self._verify(recording, call_on_trial)
        return recording

    def _verify(self, recording: Replayable, call: Call) -> None:
        """Compare the next replays with uncaptured runs; warn instead if these advance an iterator that nothing restores."""
        if what := advanced_by(self._function, is_checked=self._is_checked):
            why = f"it uses a {what}, which an uncaptured run would advance and nothing restores"
            notify(f"{self.name} is not verified: {why}\n  pass its values as arguments: a replay would not take new values")
            return
        recording.verify(call, self._policy.memory or self._policy.mutable, self.name, self._config.verify)

    def _warn_about_changed_state(self, what: str) -> None:
        """Warn when the function itself changes the checked state (`what`) a second time; the first change may fill a cache."""
        self._times_state_changed += 1
        if self._times_state_changed == 2 or (self._times_state_changed > 2 and self._config.or_error):
            text = f"{self.name} runs uncaptured: the function changes {what}, which a replay would not do"
            warn_or_raise(f"{text}\n  {self._policy.advice}", self._config)

    def _warn_about_new_objects(self) -> None:
        """Warn if nothing is recorded because an object that calls use, such as an argument, is deleted after each call."""
        self._times_objects_died += 1
        if self._times_objects_died >= _NEVER_REPEATED and not self.recordings:
            why = "an object among its arguments, or one that it reads, is deleted after each call"
            self.warn_once(f"{self.name} runs uncaptured: {why}\n  create it once, and pass the same object to each call")

    def _warn_if_rarely_repeated(self, key: Key) -> None:
        """Warn if calls differ so often in state or arguments that few can be recorded; `key` is the key of this call."""
        same_arguments = [known for known in self._first_calls if known[0] == key[0]]
        count, recorded = len(same_arguments), len(self.recordings)
        if count - recorded >= min(_NEVER_REPEATED, 2 * self._config.max_recordings):
            what = self._state.difference(same_arguments[-1][1], key[1])
            why = f"calls with the same arguments had {count + 1} different states, since {what} changes"
            advice = "change tensors in place, with copy_, and pass numbers that change as tensors"
            self.warn_once(f"{self.name} runs uncaptured: {why}\n  {advice}", f"states of which {what} differs")
        if (total := len(self._first_calls)) >= max(_MOST_KNOWN, 4 * self._config.max_recordings):
            if not recorded:
                why = f"calls had {total + 1} different arguments or states, and none was repeated"
                advice = "pass numbers that change as tensors, and pad sizes"
                self.warn_once(f"{self.name} runs uncaptured: {why}\n  {advice}", "arguments")
            self._first_calls.clear()

    def warn_once(self, text: str, about: str = "") -> None:
        """Warn with `text`, once for each `about` (default: `text`); with `config.or_error`, raise CaptureError each time."""
        if (about or text) not in self._warned or self._config.or_error:
            self._warned.add(about or text)
            warn_or_raise(text, self._config)

    def _forget(self) -> None:
        self._latest, self._why_uncaptured = None, ""
        self._latest_of.clear()

    @property
    def _is_checked(self) -> bool:
        return not isinstance(self._state, Unchecked)

    @property
    def is_training_step(self) -> bool:
        return self._part == "step"

    @property
    def mutates_arguments(self) -> bool:
        """Whether the function has mutated an argument in one of its first calls."""
        return any(first.mutated for first in self._first_calls.values())

    @property
    def recordings(self) -> list[Replayable]:
        return list(self._cache)

    def close(self) -> None:
        """Release the memory of the recordings; the next calls record again."""
        self._cache.close()
        self._first_calls.clear()


def refuse_training_steps(function: Callable[..., Any]) -> None:
    """Raise UsageError if a function is or uses a callable that `train_step` returned."""
    if any(type(value) is RecordedFunction and value.is_training_step for value in Search(function).objects):
        raise UsageError(
            f"{name_of(function)} is or calls a function that train_step returned, which dynx captures already\n"
            "  call that function itself, without capturing it again"
        )


def _identity(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
