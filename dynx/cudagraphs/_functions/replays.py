"""How a recording is replayed: the checks that a call has to pass, what its first call showed, how results are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import TreeSpec, tree_unflatten

from dynx.cudagraphs._functions.arguments import Match
from dynx.cudagraphs._functions.first_call import Mutations, share_memory, storages_of
from dynx.cudagraphs._recording.replayable import Replayable


class Latest(NamedTuple):
    """What a call needs to replay a recording: checks that it has to pass, the replay, and how to build the result."""

    match: Match
    is_unchanged: Callable[[], bool]
    run: Callable[[Sequence[torch.Tensor]], list[Any]]
    results: Callable[[list[Any]], Any]


class FirstCall(NamedTuple):
    """What the first, uncaptured call of a function with certain layouts of arguments and state has shown."""

    mutated: frozenset[int]  # indices of tensor arguments that the function mutates
    spec: TreeSpec  # of the results
    outputs: int
    is_pure: bool
    mutations: Mutations | None  # None if arguments may share memory
    is_key_valid: Callable[[], bool]  # whether the objects whose addresses are in the key are alive


def runner_of(recording: Replayable, tensors: Sequence[torch.Tensor]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return the `run` method of a recording, under `torch.no_grad` if replays copy or return arguments that require grad."""
    if recording.may_return_arguments and any(tensor.requires_grad for tensor in tensors):
        return torch.no_grad()(recording.run)
    return recording.run


def and_is_not_pending(is_unchanged: Callable[[], bool], recording: Replayable) -> Callable[[], bool]:
    """Return `is_unchanged`, extended to be false while a backward pass needs tensors that the recording saved."""
    return (lambda: not recording.is_pending and is_unchanged()) if recording.has_backward else is_unchanged


def results_of(
    recording: Replayable, spec: TreeSpec, on_replay: Callable[[Replayable], None] | None
) -> Callable[[list[Any]], Any]:
    """Return a function that builds the result of a call from the flat outputs of a replay."""

    def build(outputs: list[Any]) -> Any:
        if on_replay is not None:
            on_replay(recording)
        return tree_unflatten(outputs, spec)

    return itemgetter(0) if on_replay is None and spec.is_leaf() else build


def with_outputs(first: FirstCall, recording: Replayable) -> FirstCall:
    """Return `first`, with the memory of the recording's results added to `mutations` if the function mutates arguments.

    A result that is not cloned may be an argument of the next call. The replay would write new results to its memory, and
    then copy the mutated argument back over them.
    """
    if first.mutations is None or not first.mutations.has_arguments:
        return first
    outputs = [output for _, graph in recording.captured for output in graph.outputs if isinstance(output, torch.Tensor)]
    return first._replace(mutations=first.mutations._replace(storages=first.mutations.storages | set(storages_of(outputs))))


def without_shared_memory(match: Match, mutations: Mutations) -> Match:
    """Return a match function that also rejects arguments which share memory that the function mutates.

    A recording copies each argument to separate memory: a mutation of one would not change another that shares its memory.
    """

    def match_separate(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[torch.Tensor] | None:
        tensors = match(args, kwargs)
        return None if tensors is not None and share_memory(tensors, mutations) else tensors

    return match_separate
