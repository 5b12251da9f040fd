"""The sizes that tensors had in an earlier call, of which only the guards are left."""

from __future__ import annotations

import re
from typing import Any

from dynx._bytecode.safe_read import resolve_once, shape_of
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.retracing.retrace import Frame
from dynx.advice.facts.names import spoken

_SIZES = re.compile(r"check_tensor\(.* size=\[(?P<sizes>.*?)\]")


def first_sizes(guards: Any, frame: Frame) -> dict[str, str]:
    """Return each size that guards require and that is another one in a call, by source: `self.weight.size()[0]`."""
    found: dict[str, str] = {}
    known: dict[str, Any] = {}
    for node in tree_of(guards).walk():
        if match := next(filter(None, (_SIZES.match(text) for guard in node.guards for text in guard.texts)), None):
            required = match["sizes"].split(", ") if match["sizes"] else []
            now = shape_of(resolve_once(node.source, frame.locals, frame.globals, known))
            if now is not None and len(now) == len(required):
                sizes = enumerate(zip(required, now, strict=True))
                changed = {dim: first for dim, (first, size) in sizes if first.isdigit() and int(first) != size}
                found |= {f"{spoken(node.source)}.size()[{dim}]": first for dim, first in changed.items()}
    return found
