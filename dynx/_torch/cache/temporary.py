"""Leave no trace of what is compiled for a moment: cache entries, decisions to skip frames, and torch's counters.

Torch: `convert_frame.register_bytecode_hook`, which is called with the code object of each frame that Dynamo compiles, and
`utils.counters`; alike in 2.11, 2.13 and 2.15.
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
    require("bytecode_hook", "counters")
    from torch._dynamo.convert_frame import register_bytecode_hook
    from torch._dynamo.utils import counters

    new: dict[CodeType, None] = {}
    known: set[CodeType] = set()

    def on_compile(code: CodeType, _: CodeType) -> None:
        if code not in known:
            known.add(code)
            if not entries_of(code):
                new[code] = None

    before = {name: Counter(values) for name, values in counters.items()}
    handle = register_bytecode_hook(on_compile)
    try:
        yield
    finally:
        handle.remove()
        reset(new, "dynx.check")
        counters.clear()
        counters.update(before)
