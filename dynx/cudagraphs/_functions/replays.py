"""How a recording is replayed: which checks a call has to pass, what the first call has shown, and how results are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from dynx.cudagraphs._functions.arguments import Arguments, Match, matcher
from dynx.cudagraphs._functions.first_call import Mutations, share_memory, storages_of
from dynx.cudagraphs._recording.replayable import Replayable


class Latest(NamedTuple):
    """How calls replay a recording (the latest is tried first): the checks to pass, the replay, and how to build the result."""

    match: Match
    is_unchanged: Callable[[], bool]
    run: Callable[[Sequence[torch.Tensor]], list[Any]]
    results: Callable[[list[Any]], Any]


class FirstCall(NamedTuple):
    """Facts from the first, uncaptured call with given argument layouts and state, such as which arguments are mutated."""

    mutated: frozenset[int]  # indices of tensor arguments that the function mutates
    spec: TreeSpec  # of the results
    outputs: int
    is_pure: bool
    mutations: Mutations | None  # None if arguments may share memory
    is_key_valid: Callable[[], bool]  # whether the objects whose addresses are in the key are alive


def latest_of(
    recording: Replayable,
    first: FirstCall,
    arguments: Arguments,
    is_unchanged: Callable[[], bool],
    on_replay: Callable[[Replayable], None] | None,
) -> Latest:
    """Return the `Latest` for calls with arguments like `arguments`: they replay `recording` while `is_unchanged()` is true."""
    spec, match, run = first.spec, matcher(arguments), recording.run
    if first.mutations is not None:
        match = without_shared_memory(match, first.mutations)
    if recording.may_return_arguments and any(tensor.requires_grad for tensor in arguments.tensors):
        run = torch.no_grad()(run)  # a replay copies or returns arguments

    def may_replay() -> bool:  # not while a backward pass needs tensors that the recording saved
        return not recording.is_pending and is_unchanged()

    def results(outputs: list[Any]) -> Any:
        if on_replay is not None:
            on_replay(recording)
        return tree_unflatten(outputs, spec)

    is_plain = on_replay is None and spec.is_leaf()
    return Latest(match, may_replay if recording.has_backward else is_unchanged, run, itemgetter(0) if is_plain else results)


def with_outputs(first: FirstCall, recording: Replayable) -> FirstCall:
    """Return `first`, changed so that a call runs uncaptured if an argument is (a view of) an uncloned result of `recording`.

    `first` is changed only if the function mutates arguments. A replay with such an argument would write new results to the
    memory of the argument, and then overwrite these results when it copies the mutated argument back.
    """
    if first.mutations is None or not first.mutations.has_arguments:
        return first
    outputs = [output for _, graph in recording.captured for output in graph.outputs if isinstance(output, torch.Tensor)]
    return first._replace(mutations=first.mutations._replace(storages=first.mutations.storages | set(storages_of(outputs))))


def without_shared_memory(match: Match, mutations: Mutations) -> Match:
    """Return a function like `match` that also rejects arguments which share memory that the function mutates.

    A recording copies each argument to separate memory, so a mutation of one argument would not change the other.
    """

    def match_separate(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        tensors = match(args, kwargs)
        return None if tensors is not None and share_memory(tensors, mutations) else tensors

    return match_separate
