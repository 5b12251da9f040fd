"""Capture the calls of a Python function as CUDA graphs and replay them, without a graph from Dynamo."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from threading import RLock, get_ident
from typing import Any, NamedTuple, Protocol

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.arguments import Arguments, Match, argument_names, arguments_of, matcher
from dynx.cudagraphs._functions.first_call import (
    Mutations,
    change_detector,
    liveness_of,
    share_memory,
    storages_of,
    why_not_replayable,
)
from dynx.cudagraphs._functions.python_draws import PythonDraws
from dynx.cudagraphs._notices import warn_or_raise, why_uncaptured
from dynx.cudagraphs._recording.cache import Key, RecordingCache
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._recording.replayable import MakeReplayable, Replayable
from dynx.cudagraphs._recording.restored_memory import RestoredMemory
from dynx.cudagraphs._runtime.capture_lock import trying_threads
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._state.module_state import State
from dynx.cudagraphs._stats import count_skip, count_uncaptured, skip_of_failure
from dynx.errors import CaptureFailed, UsageError
from dynx.records.cudagraphs import GraphInput, GraphPlan, Part

_DRAW = "draw them on the device with torch, or outside of the function, and pass them as a tensor"
_NEVER_REPEATED = 8  # states that were each seen in one call only, after which the user is warned


class RecordedCallable(Protocol):
    """The callable that `fast_path`, `graphed` and `train_step` return: replays recordings of the function that it replaces."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay a recording for these arguments, record one, or run the function uncaptured."""

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
        make: Makes a recording of a call.
        mutable: Returns tensors besides the arguments that the function may mutate.
        kept_outputs: Returns tensors besides the results that a recording writes and keeps, such as gradients.
        memory: Returns tensors besides the arguments that a call may write to, to undo one; None for those of `mutable`.
        is_part_of_state: Returns whether an argument is an object whose changes are detected as changes of state.
        original: What `copy.deepcopy` and pickle copy instead of the recordings; None copies the function.
        advice: What to do where the function assigns something that a replay would not assign.
        on_replay: Called with the recording after each replay.
        on_switch: Called with a recording that is replayed after another one.
        patches_params: The function gets parameters as arguments, whose pointers are set before a replay.
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


class _Latest(NamedTuple):
    """How to replay a recording: the checks that a call has to pass, the replay, and how to build the result."""

    match: Match
    is_unchanged: Callable[[], bool]
    run: Callable[[Sequence[torch.Tensor]], list[Any]]
    results: Callable[[list[Any]], Any]


class _FirstCall(NamedTuple):
    """Facts about a function that its first, uncaptured call with given arguments and state has shown."""

    mutated: frozenset[int]  # indices of tensor arguments that the function mutates
    spec: TreeSpec  # of the results
    outputs: int
    is_pure: bool
    mutations: Mutations | None  # None where arguments may share memory
    is_key_valid: Callable[[], bool]  # whether the objects whose addresses are in the key are alive


class RecordedFunction:
    """Runs a function uncaptured once for each layout of arguments and each state, then captures and replays it."""

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
        self._config, self._runtime, self._state, self._policy = config, runtime, state, policy
        self._lock = RLock()  # reentrant: the function may call itself
        self._cache = RecordingCache[Replayable](config, name, ("its arguments", "its state"), self._lock, self._forget)
        self._first_calls: dict[Key, _FirstCall] = {}
        self._latest: _Latest | None = None
        self._latest_of: dict[int, _Latest] = {}  # by id of the recording
        self._why_uncaptured = ""
        self._times_state_changed = 0
        self._warned: set[str] = set()
        self._draws = PythonDraws()
        self._is_capturing = runtime.is_capturing if runtime is not None else _never
        if runtime is None:
            warn_or_raise(f"there is no CUDA device: {name} runs uncaptured", config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_capturing() or (trying_threads and get_ident() in trying_threads):  # a part of the outer capture
            return self._function(*args, **kwargs)
        with self._lock:
            if self._latest is not None:
                match, is_unchanged, run, results = self._latest
                tensors = match(args, kwargs)
                if tensors is not None and is_unchanged():
                    return results(run(tensors))
            return self._find_or_record(args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._original, memo)  # recordings belong to the memory of the original

    def __reduce__(self) -> tuple[Any, ...]:
        return _identity, (self._original,)

    @property
    def _original(self) -> Any:
        return self._function if self._policy.original is None else self._policy.original

    def _find_or_record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Replay another recording that fits the call, capture a new one, or run the function uncaptured.

        The first call with its arguments and state runs uncaptured, and so do all calls if capturing is impossible.
        """
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
        if recorded is None:
            if key in self._first_calls:
                return self.run_uncaptured(*args, **kwargs)
            return self._run_first(key, arguments, args, kwargs)
        match = matcher(arguments) if first.mutations is None else _without_shared_memory(matcher(arguments), first.mutations)
        results = _results_of(recorded, first.spec, self._policy.on_replay)
        run = _runner_of(recorded, arguments.tensors)
        current = _Latest(match, _and_is_not_pending(self._state.predicate(), recorded), run, results)
        self._switch(recorded, current)
        return results(run(arguments.tensors))

    def _switch(self, recording: Replayable, latest: _Latest) -> None:
        """Make the next calls try this recording first."""
        self._latest = latest
        known = ((id(other), self._latest_of.get(id(other))) for other in self._cache)
        self._latest_of = {address: other for address, other in known if other is not None}
        self._latest_of[id(recording)] = latest
        self._cache.touch(recording)
        if self._policy.on_switch is not None:
            self._policy.on_switch(recording)

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Call the function uncaptured, then record it for these arguments; with `or_error`, raise CaptureError on failure.

        What the calls write to tensors is undone.
        """
        if self._runtime is not None:
            arguments = arguments_of(args, kwargs)
            for _ in range(2):  # the first call may create what the function keeps
                key = (arguments.key, self._state.key())
                mutable = [tensor for tensor in self._policy.mutable() if not is_lazy(tensor)]
                with RestoredMemory(tensor for tensor in mutable if not isinstance(tensor, torch.nn.Parameter)):
                    self._run_first(key, arguments, args, kwargs)
                if key in self._first_calls:
                    self._recording(key, arguments, args, kwargs)
                    break

    def _recording(self, key: Key, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Replayable | None:
        """Return a recording that no backward pass needs, captured now if there is none; None if that is impossible."""
        first = self._first_calls[key]
        try:
            recording = self._cache.find(key, lambda recording: not recording.is_pending)
            if recording is not None or self._runtime is None or not self._runtime.is_warmed_up():
                return recording
            if not first.is_key_valid():
                del self._first_calls[key]
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
        """Run the first call uncaptured, and store facts that a recording needs, such as which tensors it mutates."""
        assert self._runtime is not None
        names = argument_names(self._function, args, kwargs)
        for name, leaf in zip(names, arguments.leaves, strict=True):
            if isinstance(leaf, torch.Tensor) and leaf.device != self._runtime.device:
                device = self._runtime.device
                raise UsageError(f"argument {name} of {self.name} is on {leaf.device}, not on {device}\n  move it to {device}")
        count = len(arguments.tensors)
        mutable = [tensor for tensor in self._policy.mutable() if not is_lazy(tensor)]
        changed = change_detector([*arguments.tensors, *mutable])
        result, draws = self._draws.run(lambda: self.run_uncaptured(*args, **kwargs))
        if draws:
            self._why_uncaptured = f"{self.name} runs uncaptured: it draws {draws}, which a replay would not do\n  {_DRAW}"
            warn_or_raise(self._why_uncaptured, self._config)
            return result
        if self._draws.is_suspected:
            return result
        leaves, spec = tree_flatten(result)
        after = arguments_of(args, kwargs)
        if why := why_not_replayable(key[0], arguments, after, names, leaves, self._policy.is_part_of_state):
            self.warn_once(f"{self.name} runs uncaptured: {why}")
            return result
        if what := self._state.changed_by_call(key[1]):
            self._warn_about_changed_state(what)
            return result
        self._times_state_changed = 0
        self._warn_if_never_repeated(key)
        indices = changed()
        mutated = frozenset(index for index in indices if index < count)
        is_call = self._part == "call"
        mutations = None
        if indices and count and is_call:
            written = mutable if mutated else [mutable[index - count] for index in indices]
            mutations = Mutations(frozenset(storages_of(written)), bool(mutated))
        is_key_valid = liveness_of([self._state.held(), arguments.others])
        first = _FirstCall(mutated, spec, len(leaves), is_call and not indices, mutations, is_key_valid)
        self._first_calls[arguments.key, self._state.key()] = first
        return result

    def _record(self, arguments: Arguments, first: _FirstCall, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Replayable:
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

        held, assignments = (self._state.held(), arguments.others), self._state.assignments()  # keys contain their addresses

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
        recording.held = held
        if self._config.verify:
            memory = self._policy.memory or self._policy.mutable
            recording.verify(call_on_trial, memory, self.name, self._config.verify)
        return recording

    def _warn_about_changed_state(self, what: str) -> None:
        """Warn that the function itself changes the state that is checked, except the first time, when it may fill a cache."""
        self._times_state_changed += 1
        if self._times_state_changed == 2 or (self._times_state_changed > 2 and self._config.or_error):
            text = f"{self.name} runs uncaptured: the function changes {what}, which a replay would not do"
            warn_or_raise(f"{text}\n  {self._policy.advice}", self._config)

    def _warn_if_never_repeated(self, key: Key) -> None:
        """Warn if no call repeats the arguments and the state of an earlier one, so that nothing is recorded."""
        other_states = sum(arguments == key[0] for arguments, _ in self._first_calls)
        is_full = len(self._first_calls) >= 2 * self._config.max_recordings
        if is_full or (other_states >= _NEVER_REPEATED and not self.recordings):
            ((arguments, state), *_) = reversed(self._first_calls)
            what = "the layout or value of an argument" if arguments != key[0] else self._state.difference(state, key[1])
            why = f"no call repeats the arguments and state of an earlier one, since {what} changes"
            self.warn_once(f"{self.name} runs uncaptured: {why}\n  pass numbers that change as tensors, and pad sizes")
        if is_full:
            self._first_calls.clear()

    def warn_once(self, text: str) -> None:
        """Warn with this text the first time only; with `config.or_error`, raise CaptureError with it each time."""
        if text not in self._warned or self._config.or_error:
            self._warned.add(text)
            warn_or_raise(text, self._config)

    def _forget(self) -> None:
        self._latest, self._why_uncaptured = None, ""
        self._latest_of.clear()

    @property
    def mutates_arguments(self) -> bool:
        """Whether the function mutates an argument in any call so far."""
        return any(first.mutated for first in self._first_calls.values())

    @property
    def recordings(self) -> list[Replayable]:
        return list(self._cache)

    def close(self) -> None:
        """Release the memory of the recordings; the next calls record again."""
        self._cache.close()
        self._first_calls.clear()


def _runner_of(recording: Replayable, tensors: Sequence[torch.Tensor]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return the `run` method of a recording, under `torch.no_grad` if it copies or returns arguments that require grad."""
    if recording.may_return_arguments and any(tensor.requires_grad for tensor in tensors):
        return torch.no_grad()(recording.run)
    return recording.run


def _and_is_not_pending(is_unchanged: Callable[[], bool], recording: Replayable) -> Callable[[], bool]:
    """Extend the predicate `is_unchanged`: no backward pass may still need tensors that the recording saved."""
    return (lambda: not recording.is_pending and is_unchanged()) if recording.has_backward else is_unchanged


def _identity(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _results_of(
    recording: Replayable, spec: TreeSpec, on_replay: Callable[[Replayable], None] | None
) -> Callable[[list[Any]], Any]:
    """Return a function that builds the result of a call from the flat list of outputs of a replay."""

    def build(outputs: list[Any]) -> Any:
        if on_replay is not None:
            on_replay(recording)
        return tree_unflatten(outputs, spec)

    return itemgetter(0) if on_replay is None and spec.is_leaf() else build


def _without_shared_memory(match: Match, mutations: Mutations) -> Match:
    """Return a match function that also rejects arguments which share memory that the function mutates.

    A recording has separate memory for each argument.
    """

    def match_separate(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        tensors = match(args, kwargs)
        return None if tensors is not None and share_memory(tensors, mutations) else tensors

    return match_separate
