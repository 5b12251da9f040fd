"""Record what single instructions of traced code read: attributes, `is`, lookups, imports, builtins.

Torch: `dispatch_table` of an `InstructionTranslatorBase`, a list of handlers by opcode that all translators of a class share.
The table with the handlers below is set on the translators of a recorded attempt, not on their class.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from opcode import opmap
from types import FunctionType, ModuleType
from typing import Any

from dynx._bytecode.safe_read import UNKNOWN, text_of
from dynx._torch.tracing.variables import is_kind, settled, source_of, stored
from dynx._torch.unguarded.constant_results import note_constant
from dynx._torch.unguarded.places import find, is_code
from dynx._torch.unguarded.probes import AbsentKey, Attribute, Builtin, Identity, Import, Key, Order
from dynx._torch.unguarded.read import Referent, reads_of, real_value
from dynx.records.unguarded import ReadKind

Handler = Callable[[Any, Any], Any]

_VIEWS = ("values", "keys", "items")  # methods of a dict whose results depend on its order
_tables: dict[int, list[Any]] = {}  # with the handlers below, by the ids of the tables with and without them


def record_instructions(tx: Any) -> None:
    """Record what the instructions read that this translator traces."""
    table = _tables.get(id(tx.dispatch_table))
    if table is None and isinstance(tx.dispatch_table, list):
        table = _with_handlers(tx.dispatch_table)
    if table is not None:
        tx.dispatch_table = table


def _with_handlers(table: list[Any]) -> list[Any]:
    changed = list(table)
    for name, make in _HANDLERS.items():
        opcode = opmap.get(name)
        if opcode is not None and changed[opcode] is not None:
            changed[opcode] = make(changed[opcode])
    _tables[id(table)] = _tables[id(changed)] = changed
    return changed


def _after(count: int, note: Callable[..., None], on_raise: Callable[..., None] | None = None) -> Callable[[Handler], Handler]:
    """Return what wraps a handler: `note(tx, instruction, *operands)` is called after it, `on_raise` if it raises.

    `count` is the number of operands, on the top of the stack. An instruction that breaks the graph keeps nothing.
    """

    def make(original: Handler) -> Handler:
        def handle(tx: Any, instruction: Any) -> Any:
            operands = tx.stack[-count:]
            try:
                done = original(tx, instruction)
            except Exception:
                if on_raise is not None:
                    _observe(tx, on_raise, instruction, operands)
                raise
            if not tx.output.should_exit:
                _observe(tx, note, instruction, operands)
            return done

        return handle

    return make


def _observe(tx: Any, note: Callable[..., None], instruction: Any, operands: list[Any]) -> None:
    try:
        note(tx, instruction, *operands)
    except Exception as error:  # noqa: BLE001 - a failing observer must not stop the trace
        reads_of(tx.output).on_error("frame_run", error)


def _on_attribute(tx: Any, instruction: Any, owner: Any) -> None:
    note_attribute(tx, owner, instruction.argval, tx.stack[-1])


def note_attribute(tx: Any, owner: Any, name: Any, result: Any, *, if_absent: bool = False) -> None:
    """Record the read of an attribute if it is found on a class or a module, or, with `if_absent`, nowhere."""
    value = real_value(owner)
    if value is UNKNOWN or issubclass(type(value), OrderedDict):
        if name in _VIEWS:
            _note_order(tx, owner)
        return
    reads = reads_of(tx.output)
    key = (id(value), name)
    is_constant = type(value).__module__ == "builtins" and not isinstance(value, (type, ModuleType, FunctionType))
    if type(name) is not str or not reads.found.keys().isdisjoint({("attribute", key), ("method", key)}) or is_constant:
        return
    holder, found = find(value, name)
    is_noted = if_absent if holder == "absent" else holder != "instance" or isinstance(value, ModuleType)
    if is_noted and not _is_pending(tx, owner, name):
        source = source_of(owner)
        text = f"{source or text_of(value)}.{name}"
        kind: ReadKind = "method" if is_code(found) and type(found) is not property else "attribute"
        reads.add(kind, key, lambda: (text, Attribute(Referent(value, source), name)), None if if_absent else result, text)


def _is_pending(tx: Any, owner: Any, name: str) -> bool:
    """Return whether traced code has set the attribute, so that the trace reads what it has set."""
    effects, owner = tx.output.side_effects, settled(owner)
    return bool(effects.is_attribute_mutation(owner) and effects.has_pending_mutation_of_attr(owner, name))


def _note_order(tx: Any, owner: Any) -> None:
    source, variable = source_of(owner), settled(owner)
    if source is None or tx.output.side_effects.is_modified(variable):
        return
    cls = stored(variable, "user_cls") or type(real_value(owner))  # torch 2.15 has a variable class of its own
    if is_kind(variable, "OrderedDictVariable") or (isinstance(cls, type) and issubclass(cls, OrderedDict)):
        reads_of(tx.output).add("order", source, lambda: (f"the order of {source}", Order(Referent.of(owner))))


def _on_identity(tx: Any, instruction: Any, left: Any, right: Any) -> None:
    note_identity(tx, left, right, tx.stack[-1])


def note_identity(tx: Any, left: Any, right: Any, result: Any) -> None:
    """Record whether two objects of the program are the same one."""
    if any(is_kind(settled(each), "ConstantVariable") for each in (left, right)):
        return
    words = [source_of(each) or text_of(real_value(each)) for each in (left, right)]
    if source_of(left) is not None or source_of(right) is not None:
        reads_of(tx.output).add(
            "identity",
            tuple(words),
            lambda: (f"{words[0]} is {words[1]}", Identity(Referent.of(left), Referent.of(right))),
            result,
        )


def _on_lookup(tx: Any, instruction: Any, owner: Any, key: Any) -> None:
    note_key(tx, key)
    _note_class_item(tx, owner, tx.stack[-1])


def _note_class_item(tx: Any, owner: Any, result: Any) -> None:
    """Record what `__class_getitem__` reads, which torch calls while it traces."""
    cls = real_value(owner)
    method = find(cls, "__class_getitem__").value if isinstance(cls, type) else None
    function = method.__func__ if type(method) is classmethod else method
    if type(function) is FunctionType:
        note_constant(tx, function, owner, result)


def _on_contains(tx: Any, instruction: Any, key: Any, container: Any) -> None:
    note_key(tx, key)


def note_key(tx: Any, key: Any) -> None:
    """Record an object of the program that is looked up in a container: Dynamo looks it up by the object that it has."""
    source = source_of(key)
    if source is not None and real_value(key) is not UNKNOWN and not is_kind(settled(key), "ConstantVariable"):
        reads_of(tx.output).add("key", source, lambda: (source, Key(Referent.of(key))), None, source)


def _note_absent(tx: Any, instruction: Any, owner: Any, key: Any) -> None:
    source, key = source_of(owner), settled(key)
    if source is not None and is_kind(key, "ConstantVariable") and is_kind(settled(owner), "ConstDictVariable"):
        name = stored(key, "value")
        text = f"{source}[{name!r}]"
        reads_of(tx.output).add("absent key", text, lambda: (text, AbsentKey(Referent.of(owner), name)))


def _on_import(tx: Any, instruction: Any, *operands: Any) -> None:
    name = instruction.argval
    if name in sys.modules:
        reads_of(tx.output).add("import", name, lambda: (f"import {name}", Import(name)))


def _on_global(tx: Any, instruction: Any, *operands: Any) -> None:
    name = instruction.argval
    if name not in tx.f_globals and type(module := tx.f_globals.get("__name__")) is str:
        reads_of(tx.output).add("builtin", (module, name), lambda: (name, Builtin(module, name)))


_HANDLERS: dict[str, Callable[[Handler], Handler]] = {
    "LOAD_ATTR": _after(1, _on_attribute),
    "LOAD_METHOD": _after(1, _on_attribute),
    "IS_OP": _after(2, _on_identity),
    "BINARY_SUBSCR": _after(2, _on_lookup, _note_absent),
    "CONTAINS_OP": _after(2, _on_contains),
    "IMPORT_NAME": _after(2, _on_import),
    "LOAD_GLOBAL": _after(1, _on_global),
}
