"""The last recorded state of a symbolic frame while Dynamo traces it, so that only changes have to be recorded.

What an instruction can have changed is limited: one that only moves values changes no text; one that adds no guard has realized
no lazy variable; one that adds no graph node has changed no tensor.

Torch: `stack` and `symbolic_locals` of `InstructionTranslatorBase`; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from array import array
from typing import Any

from dynx._bytecode.trail import NOTHING, Attempt, Trail
from dynx._torch.trace_log.value_text import FIXED, OPEN, TENSOR, ValueTexts
from dynx._torch.tracing.render import attribute_name, manner_of
from dynx._torch.tracing.translator import HIDDEN
from dynx._torch.tracing.variables import cell_content

_READING: tuple[Any, ...] = (super, isinstance, issubclass, len, callable)
_READING_METHODS = frozenset({"get", "__getattribute__"})  # the latter runs no traced code if no frame was traced


class RecordedFrame:
    """The state of a symbolic frame at its last row of the trail; stored on its InstructionTranslator and freed with it."""

    __slots__ = (
        *(
            "attempt",
            "bindings",
            "caller",
            "changes",
            "counted",
            "graphs",
            "guards",
            "is_root",
            "nodes",
            "number",
            "location",
            "locations",
            "progress",
            "row",
            "stack",
            "value_texts",
        ),
        *("_cells", "_changing", "_constants", "_link", "_shown", "_trail", "_values"),
    )

    def __init__(
        self,
        trail: Trail,
        number: int,
        attempt: Attempt,
        graphs: dict[Any, Any],  # of the attempt, as the recorder stores them
        value_texts: ValueTexts,  # of the attempt
        locations: array[int],  # of the trail, by instruction
        constants: dict[int, int],  # locations of LOAD_CONST to texts
    ) -> None:
        self._trail, self.value_texts, self._constants, self._link = trail, value_texts, constants, trail.push
        self.number, self.attempt, self.graphs, self.locations = number, attempt, graphs, locations
        self.is_root = False
        self.caller = NOTHING  # row of the instruction that inlines the frame
        self.row = NOTHING  # of the last row
        self.location = NOTHING  # of the last row
        self.nodes = self.guards = self.changes = 0  # of the attempt so far
        self.counted: tuple[Any, Any, Any, Any] = (None, (), (), None)  # graph, guards, shape guards, handled exceptions
        self.progress = self.bindings = NOTHING
        self.stack: list[tuple[Any, int, int, int]] = []  # value, its text, what may change that, link of the trail
        self._values: dict[str, Any] = {}
        self._shown: dict[str, tuple[int, int]] = {}  # texts of locals, and what may change them
        self._changing: set[str] = set()  # locals whose text may change
        self._cells: set[str] = set()

    def has_only_read(self, last: Any) -> bool:
        """Return whether the last instruction, a `CALL`, called a function that mutates no Python value.

        Dynamo must not have traced another frame for the call. The callee is read from the recorded stack; mutations of tensors
        show in the graph.
        """
        end = len(self.stack) - last.arg
        for entry in self.stack[max(end - 2, 0) : end]:
            name = type(entry[0]).__name__
            if name == "BuiltinVariable":
                return entry[0].fn in _READING
            if name == "TorchInGraphFunctionVariable":
                return True
            if name == "GetAttrVariable":
                return attribute_name(entry[0]) in _READING_METHODS or type(entry[0].obj).__name__ == "TensorVariable"
        return False

    def update_after_move(self, tx: Any, last: Any) -> None:
        """Update the recorded stack after an instruction that only moved values, such as `LOAD_FAST`."""
        name, stack = last.opname, self.stack
        if name == "LOAD_FAST":
            value, shown = tx.stack[-1], self._shown.get(last.argval)  # locals that torch created are not shown
            text, kind = shown or self.value_texts.of(tx, value)
        elif name == "LOAD_CONST":
            value, kind = tx.stack[-1], FIXED
            if self.location not in self._constants:
                self._constants[self.location] = self.value_texts.of(tx, value)[0]
            text = self._constants[self.location]
        else:
            if name == "SWAP":  # other instructions change only the top of a stack
                stack.clear()
            self.read_top(tx)
            return
        stack.append((value, text, kind, self._link(stack[-1][3] if stack else NOTHING, text)))

    def update_after_store(self, tx: Any, name: str | None) -> bool:
        """Record the local that the last instruction assigned, and return whether it may be a tensor.

        If `name` is None, the instruction may have assigned any locals.
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
            self._bind(name, top[1], top[2])
        else:
            self._read_local(tx, name, value)
        return name in self._changing and self._shown[name][1] == TENSOR

    def read_top(self, tx: Any, loaded: str | None = None) -> None:
        """Record the values that the last instruction, which changed no text, has pushed onto the frame's stack.

        `loaded` is the name of the local that it may have pushed.
        """
        recorded, stack, link, text_of = self.stack, tx.stack, self._link, self.value_texts.of
        same = min(len(recorded), len(stack))
        while same and recorded[same - 1][0] is not stack[same - 1]:
            same -= 1
        del recorded[same:]
        top = recorded[-1][3] if recorded else NOTHING
        for value in stack[same:]:
            if loaded is not None and self._values.get(loaded) is value:
                text, kind = self._shown.get(loaded) or text_of(tx, value)
            else:
                text, kind = text_of(tx, value)
            top = link(top, text)
            recorded.append((value, text, kind, top))

    def read_stack(self, tx: Any, level: int) -> None:
        """Record the values on the frame's stack whose text may have changed, and those that were pushed.

        `level` says what the last instruction may have changed, as one of the constants of `value_text`: only texts of
        values that such a change can affect are rendered again.
        """
        recorded, text_of = self.stack, self.value_texts.of
        same = 0
        for (before, text, kind, _), now in zip(recorded, tx.stack):  # noqa: B905 - one may be longer
            if before is not now or (kind >= level and text_of(tx, now)[0] != text):
                break
            same += 1
        del recorded[same:]
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
        """Record again the locals whose text a change of kind `level` can affect; no local may have been assigned since."""
        variables = tx.symbolic_locals
        if level != OPEN:  # reading assigns no closure variable
            for name in self._cells:
                self._read_local(tx, name, variables[name])
        if self._changing:
            for name in [*self._changing]:
                if self._shown[name][1] >= level:
                    self._read_local(tx, name, variables[name])

    def _read_local(self, tx: Any, name: str, value: Any) -> None:
        if name in self._cells:
            value = cell_content(tx, value) or value
        if self._values.get(name) is value and name not in self._changing:
            return
        self._values[name] = value
        if name.startswith(HIDDEN):
            return
        self._bind(name, *self.value_texts.of(tx, value))

    def _bind(self, name: str, text: int, kind: int) -> None:
        before = self._shown.get(name)
        if before is None or before[1] != kind:
            (self._changing.discard if kind == FIXED else self._changing.add)(name)
        elif before[0] == text:
            return
        self._shown[name] = text, kind
        if before is None or before[0] != text:
            self.bindings = self._trail.bind(self.bindings, self._trail.text(name), text)

    def _forget(self, variables: dict[str, Any]) -> None:
        for name in [local for local in self._values if local not in variables]:
            del self._values[name]
            self._changing.discard(name)
            self._cells.discard(name)
            if self._shown.pop(name, None) is not None:
                self.bindings = self._trail.bind(self.bindings, self._trail.text(name), NOTHING)
