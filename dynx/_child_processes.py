"""Children that a watched program spawns are watched too; each writes a run file of its own beside the parent's.

A forked child carries its parent's watch along. A spawned one starts as a new interpreter and gets its parent's main module,
path and arguments as a pickled dict (`multiprocessing.spawn`); dynx adds an entry that starts a watch when it is unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dynx._torch.hooks import After, HookPoint, Subscription, subscribe

_POINT = HookPoint("spawn", "multiprocessing.spawn:get_preparation_data", ("name",), purpose="children that the program spawns")
# A child without dynx runs on unwatched. Its path is not set up yet and is replaced as a whole right after this.
_JOIN = """
import sys
sys.path.insert(0, {folder!r})
try:
    from dynx.session import join
    join({out!r}, {command!r})
except Exception as error:
    print(f"dynx does not watch this child: {{type(error).__name__}}: {{error}}", file=sys.stderr)
"""


def watch_children(out: Path, command: Sequence[str], on_error: Callable[[str, BaseException], None]) -> Subscription:
    """Give every child spawned from now on a run file beside `out`: `last.dynx` becomes `last.12345.dynx`."""
    joins = _Join(os.path.abspath(out), list(command))

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> After:
        def after(result: Any, raised: BaseException | None) -> None:
            if raised is None:
                result.setdefault("dynx", []).append(joins)  # multiprocessing ignores what it does not know

        return after

    return subscribe(_POINT, before, on_error=on_error)


class _Join:
    """Unpickling it in a child starts the child's watch."""

    def __init__(self, out: str, command: list[str]) -> None:
        self._text = _JOIN.format(folder=str(Path(__file__).parent.parent), out=out, command=command)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, Any]]]:
        return exec, (self._text, {})
