"""Leave no trace of what is compiled for a moment: cache entries, decisions to skip frames, global names, torch's counters.

Torch: `convert_frame.register_bytecode_hook`, which is called with the code object of each frame that Dynamo compiles and the
code that it becomes, `utils.CleanupManager`, and `utils.counters`; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

from dynx._torch.cache.entries import entries_of
from dynx._torch.cache.eviction import reset
from dynx._torch.capabilities import require


@contextmanager
def nothing_remains() -> Iterator[None]:
    """Remove at the end the cache entries of code that had none before, and restore torch's counters."""
    require("bytecode_hook", "counters", "global_names")
    from torch._dynamo.convert_frame import register_bytecode_hook
    from torch._dynamo.utils import counters

    new: dict[CodeType, list[CodeType]] = {}  # the compiled versions of each code object
    known: set[CodeType] = set()

    def on_compile(code: CodeType, compiled: CodeType) -> None:
        if code not in known:
            known.add(code)
            if not entries_of(code):
                new[code] = []
        if code in new:
            new[code].append(compiled)

    before = {name: Counter(values) for name, values in counters.items()}
    handle = register_bytecode_hook(on_compile)
    try:
        yield
    finally:
        handle.remove()
        reset(new, "dynx.check")
        for versions in new.values():
            for version in versions:
                _remove_names_of(version)
        counters.clear()
        counters.update(before)


def _remove_names_of(compiled: CodeType) -> None:
    """Remove the global names, such as of resume functions, that Dynamo gave to compiled code which no longer runs.

    Torch does so when the code object is freed, but holds a reference to one that has run until Python exits.
    """
    from torch._dynamo.utils import CleanupManager

    manager = CleanupManager.instance
    if id(compiled) in manager.values:
        manager._remove_id(id(compiled))
