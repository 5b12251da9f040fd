"""A function that is recorded as it is called, without a compiled graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.arguments import Arguments, Match, arguments_of, matching, names_of
from dynx.cudagraphs._functions.first_call import Changes, are_mixed, changes_of, holding, memory_of, why_not_alike
from dynx.cudagraphs._notices import tell
from dynx.cudagraphs._recording.cache import Key, Recordings
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._state.module_state import State
from dynx.cudagraphs._stats import count_skip, count_uncaptured, failure
from dynx.errors import CaptureFailed, UsageError
from dynx.records.cudagraphs import GraphInput, GraphPlan, Part

_NEVER_ALIKE = 8  # states, each of which was there in one call only, after which that is told


class _Hot(NamedTuple):
    """What the last call needed, for one that is like it."""

    match: Match
    is_unchanged: Callable[[], bool]
    run: Callable[[Sequence[torch.Tensor]], list[Any]]
    give: Callable[[list[Any]], Any]


class _Seen(NamedTuple):
    """What the first call with a key showed."""

    written: frozenset[int]  # tensors that the function changes
    spec: TreeSpec  # of what it gives
    outputs: int
    is_pure: bool
    changes: Changes | None  # None where arguments may lie where they want
    means: Callable[[], bool]  # whether the key stands for what it stood for: it is made of addresses


class Recorded:
    """Runs a function once for each layout and state as it is, then from recordings."""

    def __init__(
        self, function: Callable[..., Any], part: Part, name: str, config: Config, runtime: Runtime | None, state: State
    ) -> None:
        self._function, self._part, self.name = function, part, name
        self._config, self._runtime, self._state = config, runtime, state
        self._recordings = Recordings(config, name, ("its arguments", "its state"), self._forget)
        self._seen: dict[Key, _Seen] = {}
        self._hot: _Hot | None = None  # of the recording that was used last
        self._hot_of: dict[int, _Hot] = {}  # by the recording
        self._why_not = ""  # it runs uncaptured
        self._times_it_changed_itself = 0
        self._told: set[str] = set()
        self._alone = RLock()  # the function may call itself
        self._is_captured = runtime.is_capturing if runtime is not None else _never
        self.also: Callable[[], Sequence[torch.Tensor]] | None = None  # what else a recording writes, and keeps
        self.original: Any = function  # what copies of it are
        self.watched: Callable[[], Sequence[torch.Tensor]] = tuple  # that the function may change
        self.covers: Callable[[Any], bool] = _none  # objects among arguments that the state is that of too
        self.make: Callable[..., Any] = Recording
        self.on_replay: Callable[[Recording], None] | None = None
        self.on_switch: Callable[[Recording], None] | None = None
        if runtime is None:
            tell(f"there is no CUDA device: {name} runs uncaptured", config)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_captured():  # it becomes a part of what is captured
            return self._function(*args, **kwargs)
        with self._alone:
            if self._hot is not None:
                match, is_unchanged, run, give = self._hot
                tensors = match(args, kwargs)
                if tensors is not None and is_unchanged():
                    return give(run(tensors))
            return self._find(args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.original, memo)  # recordings are of the original's memory

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_it_is, (self.original,)

    def _find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Record for a call, or run it as it is: the first of its kind, and where there can be no recording."""
        if self._runtime is None or self._why_not:
            if self._why_not and self._config.or_error:
                tell(self._why_not, self._config)
            return self._run(args, kwargs)
        for each in self._recordings:  # layouts may take turns: to look at all of the state takes long
            hot = self._hot_of.get(id(each))
            tensors = hot.match(args, kwargs) if hot is not None else None
            if hot is not None and tensors is not None and hot.is_unchanged():
                self._switch(each, hot)
                return hot.give(hot.run(tensors))
        arguments = arguments_of(args, kwargs)
        key = (arguments.key, self._state.key())
        if key not in self._seen:
            return self._first(key, arguments, args, kwargs)
        seen = self._seen[key]
        if seen.changes is not None and are_mixed(arguments.tensors, seen.changes):
            self.tell_once(f"{self.name} runs uncaptured: arguments lie in the same memory as what it changes")
            return self._run(args, kwargs)
        recording = self._recording(key, arguments, args, kwargs)
        if recording is None:
            return self._run(args, kwargs) if key in self._seen else self._first(key, arguments, args, kwargs)
        give = _giving(recording, seen.spec, self.on_replay)
        match = matching(arguments) if seen.changes is None else _apart(matching(arguments), seen.changes)
        hot = _Hot(match, _all_of(self._state.check(), recording), recording.run, give)
        self._switch(recording, hot)
        return give(recording.run(arguments.tensors))

    def _switch(self, recording: Any, hot: _Hot) -> None:
        """Have the next calls look at a recording first."""
        self._hot = hot
        self._hot_of = {id(each): known for each in self._recordings if (known := self._hot_of.get(id(each))) is not None}
        self._hot_of[id(recording)] = hot
        self._recordings.use(recording)
        if self.on_switch is not None:
            self.on_switch(recording)

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Call the function as it is, and record it for such arguments. Raises CaptureError where `or_error` asks for it."""
        if self._runtime is not None:
            arguments = arguments_of(args, kwargs)
            for _ in range(2):  # in the first it may make what it keeps
                key = (arguments.key, self._state.key())
                self._first(key, arguments, args, kwargs)
                if key in self._seen:
                    self._recording(key, arguments, args, kwargs)
                    break

    def _recording(self, key: Key, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Find a recording that nobody waits for, or make one; None where there can be none."""
        seen = self._seen[key]
        try:
            found = self._recordings.find(key, lambda each: not each.is_pending)
            if found is not None or self._runtime is None or not self._runtime.is_warm():
                return found
            if not seen.means():
                del self._seen[key]
                return None
            self._hot = None  # it may be closed to make room
            return self._recordings.add(key, lambda: self._record(arguments, seen, args, kwargs))
        except CaptureFailed as error:
            skip = count_skip(failure(error))
            self._why_not = f"{self.name} runs uncaptured: {skip.reason}\n  {skip.advice}"
            tell(self._why_not, self._config)
            return None

    def run_uncaptured(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it is."""
        return self._run(args, kwargs)

    def _run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        count_uncaptured()
        if self._runtime is None:
            return self._function(*args, **kwargs)
        return self._runtime.warm_up(lambda: self._function(*args, **kwargs))

    def _first(self, key: Key, arguments: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        assert self._runtime is not None
        names = names_of(self._function, args, kwargs)
        for name, each in zip(names, arguments.leaves, strict=True):
            if isinstance(each, torch.Tensor) and each.device != self._runtime.device:
                raise UsageError(f"{name} of {self.name} is on {each.device}\n  move it to {self._runtime.device}")
        count, watched = len(arguments.tensors), [each for each in self.watched() if not is_lazy(each)]
        changes = changes_of([*arguments.tensors, *watched])
        result = self._run(args, kwargs)
        leaves, spec = tree_flatten(result)
        if why := why_not_alike(key[0], arguments, arguments_of(args, kwargs), names, leaves, self.covers):
            self.tell_once(f"{self.name} runs uncaptured: {why}")
            return result
        if what := self._state.changed_itself(key[1]):
            self._tell_what_it_changes(what)
            return result
        self._times_it_changed_itself = 0
        changed = changes()
        written = frozenset(index for index in changed if index < count)
        is_pure = self._part == "call" and not changed
        mixed = watched if written else [watched[index - count] for index in changed]
        is_mixable = changed and count and self._part == "call"
        apart = Changes(frozenset(memory_of(mixed)), bool(written)) if is_mixable else None
        other_states = sum(known == key[0] for known, _ in self._seen)
        is_full = len(self._seen) >= 2 * self._config.max_recordings
        if is_full or (other_states >= _NEVER_ALIKE and not self.recordings):
            self._tell_what_changes(key)
        if is_full:
            self._seen.clear()
        others = [each for each in arguments.leaves if not isinstance(each, torch.Tensor)]
        self._seen[arguments.key, self._state.key()] = _Seen(
            written, spec, len(leaves), is_pure, apart, holding([self._state.held(), others])
        )
        return result

    def _record(self, arguments: Arguments, seen: _Seen, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Recording:
        assert self._runtime is not None
        names = names_of(self._function, args, kwargs)
        named = [(name, each) for name, each in zip(names, arguments.leaves, strict=True) if isinstance(each, torch.Tensor)]
        inputs = [
            GraphInput(name, "dynamic", "an argument", index in seen.written, is_fixed=True, nbytes=each.nbytes)
            for index, (name, each) in enumerate(named)
        ]
        plan = GraphPlan(self._part, tuple(inputs), seen.outputs, are_all_handed_out=False, is_pure=seen.is_pure)

        def call(tensors: list[Any]) -> list[Any]:
            leaves, _ = tree_flatten(arguments.call(self._function, tensors))
            return [*leaves, *(self.also() if self.also is not None else ())]

        others = [each for each in arguments.leaves if not isinstance(each, torch.Tensor)]  # of which keys have the addresses
        held, put_back = (self._state.held(), others), self._state.undoing()
        try:
            recording: Recording = self.make(call, plan, self._config, self._runtime, arguments.tensors)
        finally:  # nothing has been computed: what was assigned is nothing to go on with
            assigned = put_back()
        if assigned:
            recording.close()
            raise CaptureFailed(f"it changes {assigned} itself\n  have it give that as a result")
        recording.held = held
        if type(recording) is Recording and recording.uses_arguments and any(each.requires_grad for each in arguments.tensors):
            recording.run = torch.no_grad()(recording.run)  # the caller may have gradients on
        return recording

    def _tell_what_it_changes(self, what: str) -> None:
        """Say that a function changes what it is recorded for, where that is more than a cache that it fills once."""
        self._times_it_changed_itself += 1
        if self._times_it_changed_itself == 2 or (self._times_it_changed_itself > 2 and self._config.or_error):
            tell(f"{self.name} runs uncaptured: it changes {what} itself, which a replay would not do", self._config)

    def _tell_what_changes(self, key: Key) -> None:
        """Say that a function is called in ever new ways, and so is not recorded."""
        ((arguments, state), *_) = reversed(self._seen)
        what = "what it is called with" if arguments != key[0] else self._state.difference(state, key[1])
        self.tell_once(f"{self.name} runs uncaptured, as it is never called twice alike: {what} changes")

    def tell_once(self, text: str) -> None:
        """Say why a call runs uncaptured; again only where that is an error."""
        if text not in self._told or self._config.or_error:
            self._told.add(text)
            tell(text, self._config)

    def _forget(self) -> None:
        self._hot, self._why_not = None, ""
        self._hot_of.clear()

    @property
    def writes(self) -> bool:
        """Whether the function changes an argument."""
        return any(each.written for each in self._seen.values())

    @property
    def recordings(self) -> list[Any]:
        return list(self._recordings)

    def close(self) -> None:
        """Give back the memory of its recordings; it records anew when it is called."""
        self._recordings.close()
        self._seen.clear()


def _all_of(is_unchanged: Callable[[], bool], recording: Recording) -> Callable[[], bool]:
    """Add to a check of the state that nobody waits for the recording."""
    return is_unchanged if type(recording) is Recording else lambda: not recording.is_pending and is_unchanged()


def _never() -> bool:
    return False


def _none(value: Any) -> bool:
    return False


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _giving(recording: Recording, spec: TreeSpec, on_replay: Callable[[Recording], None] | None) -> Callable[[list[Any]], Any]:
    """Give what makes the result of a call of what a replay gave."""

    def give(outputs: list[Any]) -> Any:
        if on_replay is not None:
            on_replay(recording)
        return tree_unflatten(outputs, spec)

    return itemgetter(0) if on_replay is None and spec.is_leaf() else give


def _apart(match: Match, changes: Changes) -> Match:
    """Leave out calls whose tensors lie in the same memory: a recording has memory for each."""

    def match_apart(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        tensors = match(args, kwargs)
        return None if tensors is not None and are_mixed(tensors, changes) else tensors

    return match_apart
