"""The last recorded state of a symbolic frame while Dynamo traces it, so that only changes have to be recorded.

The state before each instruction is a row of the trail (`dynx._bytecode.trail`), with a text for each value. The level of a
text says what may change it (`value_text`). What an instruction can have changed is limited: one that only moves values changes
no text; one that adds no guard has realized no lazy variable; one that adds no graph node has changed no tensor.

Torch: `stack` and `symbolic_locals` of `InstructionTranslatorBase`.
"""

from __future__ import annotations

from array import array
from typing import Any

from dynx._bytecode.trail import NOTHING, Trail
from dynx._torch.trace_log.progress import AttemptProgress
from dynx._torch.trace_log.value_text import FIXED, OPEN, READERS, TENSOR, Text, changed_level
from dynx._torch.tracing.render import attribute_name, manner_of
from dynx._torch.tracing.translator import HIDDEN
from dynx._torch.tracing.variables import cell_content, is_kind

_READING: tuple[Any, ...] = (super, isinstance, issubclass, len, callable, type, getattr, hasattr)
_READING_CLASSES = frozenset({"GetAttrBuiltinVariable", "HasAttrBuiltinVariable", "TorchInGraphFunctionVariable"})
_READING_METHODS = frozenset({"get", "__getattribute__"})
_ITERATORS = frozenset({"ListIteratorVariable", "RangeIteratorVariable", "TupleIteratorVariable"})  # with unchanging text
_IN_PLACE = 13  # the lowest argument of BINARY_OP that stands for an in-place operation


class RecordedFrame:
    """The state of a symbolic frame when its latest row was recorded; stored on its InstructionTranslator and freed with it."""

    __slots__ = (
        *("bindings", "caller", "is_root", "location", "locations", "number", "progress", "row", "stack", "texts"),
        *("_cells", "_changes", "_changing", "_constants", "_shown", "_trail", "_values"),
    )

    def __init__(
        self,
        trail: Trail,
        number: int,
        progress: AttemptProgress,
        locations: array[int],  # of the trail, by instruction
        constants: dict[int, Text],  # by location of a LOAD_CONST
        *,
        is_root: bool,
    ) -> None:
        self._trail, self.progress, self.texts, self._constants = trail, progress, progress.texts, constants
        self.number, self.locations, self.is_root = number, locations, is_root
        self.caller = NOTHING  # row of the instruction that inlines the frame
        self.row = self.location = NOTHING  # of the last row
        self.bindings = NOTHING
        self.stack: list[tuple[Any, Text, int]] = []  # value, its text, its link in the trail
        self._changes: list[int] = []  # `ValueTexts.changes` at the last row
        self._values: dict[str, Any] = {}
        self._shown: dict[str, Text] = {}  # texts of locals
        self._changing: set[str] = set()  # locals whose text may change
        self._cells: set[str] = set()

    def changed_level(self) -> int:
        """Return the lowest level of the texts (see `value_text`) that may have changed since the last call; FIXED if none."""
        level = changed_level(self._changes, self.texts.changes)
        if level != FIXED:
            self._changes = self.texts.changes.copy()
        return level

    def has_only_read(self, last: Any) -> bool:
        """Return whether the last instruction, judged by its opcode and callee, mutated no Python value whose text may change.

        Two kinds of mutations do not count: mutations of tensors appear in the graph, and mutations by an inlined function
        appear in the rows of that function in the trail, the log of the trace.
        """
        if last.opname == "BINARY_OP":
            return last.arg < _IN_PLACE
        if last.opname == "FOR_ITER":
            return type(self.stack[-1][0]).__name__ in _ITERATORS
        return _only_reads(self._callee(last))

    def has_only_traced(self, last: Any) -> bool:
        """Return whether the last instruction only read values, or called a user function, which Dynamo traces itself."""
        return is_kind(self._callee(last), "BaseUserFunctionVariable") or self.has_only_read(last)

    def _callee(self, last: Any) -> Any:
        """Return the variable that the instruction `last` calls, read from the stack before the call; None if it is no call.

        The two stack entries below the arguments are NULL and the function, or a method's function and its object; in Python
        3.13 and later, the function and NULL.
        """
        if last.opname == "CALL":
            end = len(self.stack) - last.arg
        elif last.opname == "CALL_FUNCTION_EX":
            end = len(self.stack) - 1 - (last.arg & 1)
        else:
            return None
        first = self.stack[end - 2][0] if end >= 2 else None
        return self.stack[end - 1][0] if type(first).__name__ == "NullVariable" else first

    def update_after_move(self, tx: Any, last: Any) -> None:
        """Update the recorded stack after an instruction that only pushed, popped or reordered values, such as `LOAD_FAST`."""
        name, stack = last.opname, self.stack
        if name == "LOAD_FAST":
            value, text = tx.stack[-1], self._shown.get(last.argval)
            if text is None:  # locals that torch created are not shown
                text = self.texts.of(tx, value)
        elif name == "LOAD_CONST":
            value, text = tx.stack[-1], self._constants.get(self.location)
            if text is None:
                text = self._constants[self.location] = self.texts.of(tx, value)
        else:
            if name == "SWAP":  # other instructions that move values change only the top of the stack
                stack.clear()
            self.read_top(tx)
            return
        below, trail = stack[-1][2] if stack else NOTHING, self._trail
        stack.append((value, text, len(trail.below)))
        trail.below.append(below)
        trail.values.append(text[0])

    def update_after_store(self, tx: Any, name: str | None) -> bool:
        """Record the local `name` that the last instruction assigned, and return whether its value may be a tensor.

        `name` is None if the instruction may have assigned any locals.
        """
        recorded, stack, top = self.stack, tx.stack, None
        if len(recorded) == len(stack) + 1 and (not stack or stack[-1] is recorded[-2][0]):
            top = recorded.pop()
        else:
            self.read_top(tx)
        if name is None:
            self.read_locals(tx, reread=False)
            return True
        value = tx.symbolic_locals[name]
        if top is not None and top[0] is value and name not in self._cells and not name.startswith(HIDDEN):
            self._values[name] = value
            self._bind(name, top[1])
        else:
            self._read_local(tx, name, value)
        shown = self._shown.get(name)
        return shown is not None and shown[1] == TENSOR

    def read_top(self, tx: Any) -> None:
        """Record the values that the last instruction pushed onto the frame's stack; it must have changed no other value."""
        recorded, stack, texts = self.stack, tx.stack, self.texts
        below, values = self._trail.below, self._trail.values
        same = min(len(recorded), len(stack))
        while same and recorded[same - 1][0] is not stack[same - 1]:
            same -= 1
        del recorded[same:]
        top = recorded[-1][2] if recorded else NOTHING
        for value in stack[same:]:
            text = READERS[type(value)](texts, tx, value, 2)
            recorded.append((value, text, len(below)))
            below.append(top)
            values.append(text[0])
            top = len(below) - 1

    def read_stack(self, tx: Any, level: int) -> None:
        """Record the values on the frame's stack that were pushed, and those whose text may have changed.

        The texts that may have changed are those of `level` (see `value_text`) and of higher levels.
        """
        recorded, text_of = self.stack, self.texts.of
        same = 0
        for (before, text, _), now in zip(recorded, tx.stack):  # noqa: B905 - one may be longer
            if before is not now or (text[1] >= level and text_of(tx, now)[0] != text[0]):
                break
            same += 1
        del recorded[same:]
        if same < len(tx.stack):
            self.read_top(tx)

    def read_first(self, tx: Any) -> None:
        """Record the stack and the locals of a frame that has no row in the trail (the log of the trace) yet."""
        texts, trail, bindings = self.texts, self._trail, NOTHING
        self._changes = texts.changes.copy()
        self.read_top(tx)
        for name, value in tx.symbolic_locals.items():
            if manner_of(value) == "cell":
                self._cells.add(name)
                value = cell_content(tx, value) or value
            self._values[name] = value
            if not name.startswith(HIDDEN):
                text = self._shown[name] = READERS[type(value)](texts, tx, value, 2)
                if text[1] != FIXED:
                    self._changing.add(name)
                bindings = trail.bind(bindings, trail.text(name), text[0])
        self.bindings = bindings

    def read_built(self, tx: Any, depth: int) -> None:
        """Record the stack after an item was added to the container `tx.stack[-depth]`, which no other value references."""
        end = len(tx.stack) - depth
        self.texts.forget(tx.stack[end])
        del self.stack[end:]
        self.read_top(tx)

    def read_locals(self, tx: Any, *, reread: bool) -> None:
        """Record the locals that were assigned since the last row; with `reread` also those whose text may have changed."""
        variables = tx.symbolic_locals
        for name, value in variables.items():
            recorded = self._values.get(name)
            if recorded is None and manner_of(value) == "cell":
                self._cells.add(name)
            if reread or recorded is not value:
                self._read_local(tx, name, value)
        if len(self._values) != len(variables):
            self._forget(variables)

    def reread_locals(self, tx: Any, level: int) -> None:
        """Render again the locals whose texts have at least this level; no local may have been assigned since the last row."""
        if level != OPEN:  # an instruction that only read values has assigned no closure variable
            for name in self._cells:
                self._read_local(tx, name, tx.symbolic_locals[name])
        for name in [*self._changing]:
            shown = self._shown[name]
            if shown[1] >= level:
                value = self._values[name]
                text = READERS[type(value)](self.texts, tx, value, 2)
                if text != shown:
                    self._bind(name, text)

    def _read_local(self, tx: Any, name: str, value: Any) -> None:
        if name in self._cells:
            value = cell_content(tx, value) or value
        if self._values.get(name) is value and name not in self._changing:
            return
        self._values[name] = value
        if name.startswith(HIDDEN):
            return
        self._bind(name, self.texts.of(tx, value))

    def _bind(self, name: str, text: Text) -> None:
        before = self._shown.get(name)
        self._shown[name] = text
        if before is None or before[1] != text[1]:
            (self._changing.discard if text[1] == FIXED else self._changing.add)(name)
        if before is None or before[0] != text[0]:
            self.bindings = self._trail.bind(self.bindings, self._trail.text(name), text[0])

    def _forget(self, variables: dict[str, Any]) -> None:
        for name in [local for local in self._values if local not in variables]:
            del self._values[name]
            self._changing.discard(name)
            self._cells.discard(name)
            if self._shown.pop(name, None) is not None:
                self.bindings = self._trail.bind(self.bindings, self._trail.text(name), NOTHING)


def _only_reads(function: Any) -> bool:
    name = type(function).__name__
    if name == "BuiltinVariable":
        return function.fn in _READING
    if name == "GetAttrVariable":
        holder = type(function.obj).__name__
        return holder in ("ConstantVariable", "TensorVariable") or attribute_name(function) in _READING_METHODS
    return name in _READING_CLASSES
