"""Observe which sizes and numbers torch makes dynamic, and which symbols each compiled graph has.

Torch: `pgo.update_automatic_dynamic(tx, name, entry)`, called for each value; and the `ShapeEnv` after
`OutputGraph.call_user_compiler`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point, require
from dynx._torch.shapes.closure_hash import closure_hash, hashes_closures
from dynx._torch.shapes.code_state import RawCodeId, plain_sizes
from dynx._torch.shapes.symbol_facts import RawSymbol, symbols_in
from dynx._torch.tracing.stack import RawFrame, of_parts, stack_parts
from dynx._torch.tracing.translator import trace_id
from dynx.records.profile import SourceProfile


class RawUpdate(NamedTuple):
    """The sizes and strides (or number) of one source in one tracing attempt, and which of them torch makes dynamic."""

    code: RawCodeId
    source: str
    compile_id: str
    attempt: int
    now: SourceProfile  # the values in this call
    known: SourceProfile  # merged with the values of earlier calls and of profiles
    stack: tuple[RawFrame, ...]


class RawGraph(NamedTuple):
    """A graph that was passed to the backend, and its symbols; `symbols` is None if the backend raised an exception."""

    code: RawCodeId  # of the function that was called; other functions may be inlined into it
    compile_id: str
    attempt: int
    symbols: list[RawSymbol] | None


class SizeListener(Handle):
    """A handle that calls `note` for each value that may be dynamic, and `note_graph` for each graph; errors go to `report`."""

    def __init__(
        self,
        note: Callable[[RawUpdate], None],
        note_graph: Callable[[RawGraph], None],
        report: Callable[[str, BaseException], None],
    ) -> None:
        require("dynamic_update", "backend")
        self._note, self._note_graph = note, note_graph
        self._hooks = [
            hooks.subscribe(hook_point("dynamic_update"), self._before_update, on_error=report),
            hooks.subscribe(hook_point("backend"), self._before_backend, on_error=report),
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before_update(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After:
        tx, source, entry = args[:3]
        now, trace, parts = plain_sizes(entry), trace_id(), stack_parts()

        def after(result: Any, raised: BaseException | None) -> None:
            if raised is None:
                stack = of_parts(parts) if parts is not None else ()
                self._note(RawUpdate(_code_id(tx), source, *trace, now, plain_sizes(result), stack))

        return after

    def _before_backend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After:
        shape_env, code, trace = args[0].shape_env, _code_id(args[0].root_tx), trace_id()

        def after(result: Any, raised: BaseException | None) -> None:
            self._note_graph(RawGraph(code, *trace, list(symbols_in(shape_env)) if raised is None else None))

        return after


def _code_id(tx: Any) -> RawCodeId:
    """Return an identity of the traced function that is the same in every process.

    If torch's identity has a hash of the closure, it is replaced by dynx's hash, since torch's differs between processes.
    """
    from torch._dynamo import pgo

    code = pgo.CodeId.make(tx.f_code)
    closure = closure_hash(tx.closure) if tx.closure and hashes_closures() else None
    return RawCodeId(code.file_hash, code.firstlineno, code.name, closure, code.filename)
