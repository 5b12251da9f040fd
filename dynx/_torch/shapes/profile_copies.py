"""Copies of torch's profile of dynamic sizes (PGO) in memory, which traces use and update in place of the process's own."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dynx._torch.capabilities import require
from dynx._torch.shapes.code_state import add_seeds


def profile_now() -> Any | None:
    """Return a copy of torch's profile of this process; None if torch has not created it yet."""
    require("profile")
    from torch._dynamo import pgo

    return None if pgo._CODE_STATE is None else copy_of(pgo._CODE_STATE)


def profile_at_start() -> Any:
    """Return the profile with which torch began to compile: what it loaded from disk, and the sizes that dynx adds to it."""
    require("profile_at_start", "code_knowledge")
    from torch._dynamo import pgo

    profile = copy_of(pgo._INIT_CODE_STATE) if pgo._INIT_CODE_STATE is not None else defaultdict(pgo.CodeState)
    add_seeds(profile)
    return profile


def copy_of(profile: Any) -> Any:
    """Copy a profile: a dict of `CodeState`, whose entries `pgo.update_automatic_dynamic` changes in place."""
    copied = copy.copy(profile)
    for code, state in profile.items():
        copied[code] = new = copy.copy(state)
        new.automatic_dynamic = copy.copy(state.automatic_dynamic)
        for source, entry in state.automatic_dynamic.items():
            new.automatic_dynamic[source] = copy.copy(entry)
    return copied


@contextmanager
def in_use(profile: Any) -> Iterator[None]:
    """Let torch use this profile instead of the process's own inside this context."""
    from torch._dynamo import pgo

    before = pgo._CODE_STATE
    pgo._CODE_STATE = profile
    try:
        yield
    finally:
        pgo._CODE_STATE = before


def set_values(profile: Any, name_of: Callable[[str], str], values: Mapping[str, int]) -> None:
    """Replace numbers and sizes in a profile.

    `values` are by source, such as `self.n` or `x.size()[0]`; `name_of` returns the name under which a source of torch's
    profile, such as `L['self'].n`, is found there.
    """
    for state in profile.values():
        for source, entry in state.automatic_dynamic.items():
            name = name_of(source)
            if name in values and type(entry.scalar) is int:
                entry.scalar = values[name]
            if type(entry.size) is tuple:
                entry.size = tuple(values.get(f"{name}.size()[{dim}]", size) for dim, size in enumerate(entry.size))
