"""Build the record of a graph's repeated modules, with the guarded values in which they differ."""

from __future__ import annotations

from collections.abc import Iterable

from dynx._bytecode.safe_read import UNKNOWN, resolve_once, text_of
from dynx._torch.compilation.frame import CompileCall
from dynx._torch.tracing.repeated import RawRepeated, dotted
from dynx._trace.guards.requests import short_source
from dynx.records.compile import Repeated

_PLAIN = (type(None), bool, int, float, str)


def repeated_record(raw: RawRepeated, guarded: Iterable[str], call: CompileCall) -> Repeated:
    """Return the record of repeated modules; `guarded` are the sources of the guards of the compilation `call`."""
    values: dict[str, dict[int, str]] = {}  # by name within a module, then by index of the module
    known: dict[str, object] = {}
    for source in guarded:
        index, _, name = dotted(source).removeprefix(f"{raw.parent}.").partition(".")
        if not (name and dotted(source).startswith(f"{raw.parent}.") and index.isdigit() and int(index) in raw.indexes):
            continue
        value = resolve_once(source, call.locals, call.globals, known)
        if value is UNKNOWN or type(value) in _PLAIN:
            values.setdefault(name, {})[int(index)] = "?" if value is UNKNOWN else text_of(value)
    differ = [name for name, of in values.items() if len(set(of.values())) > 1 or len(of) < len(raw.indexes)]
    return Repeated(short_source(raw.parent), raw.type_name, len(raw.indexes), raw.share, tuple(differ))
