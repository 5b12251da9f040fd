"""Write down what the tracer knows before each instruction, without changing it.

Torch: `exn_vt_stack` and `instructions` of `InstructionTranslatorBase`, `graph` and `guards` of `OutputGraph`; alike in 2.11,
2.13 and 2.15.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from dynx._bytecode.trail import NOTHING, Attempt, Trail, pack_row
from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.trace_log.frame import RecordedFrame
from dynx._torch.trace_log.node_effects import may_change_tensors
from dynx._torch.trace_log.value_text import ITEMS, NEVER, OPEN, TENSOR, ValueTexts
from dynx._torch.tracing import line_hook, translator
from dynx._torch.tracing.render import show

# what an instruction may do to values: nothing at all; move them between the stack, locals and constants; look at them; change
# them. All but the first two may also run traced code, and what is in none of the lists may do anything.

_EFFECTS: Mapping[str, str] = {
    name: effect
    for effect, names in {
        "idle": "CACHE EXTENDED_ARG JUMP_BACKWARD JUMP_FORWARD KW_NAMES NOP PRECALL RESUME",
        "move": "COPY LOAD_CLOSURE LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST POP_TOP PUSH_NULL SWAP",
        "store": "STORE_FAST",
        "cells": "COPY_FREE_VARS MAKE_CELL STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST",
        "look": "BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE BUILD_STRING BUILD_TUPLE COMPARE_OP "
        "CONTAINS_OP FORMAT_VALUE GET_ITER IS_OP LOAD_ATTR LOAD_DEREF LOAD_GLOBAL LOAD_METHOD MAKE_FUNCTION "
        "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE "
        "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE "
        "POP_JUMP_IF_TRUE RETURN_VALUE TO_BOOL UNPACK_SEQUENCE",
        "change": "BINARY_OP CALL CALL_FUNCTION_EX CALL_KW DICT_MERGE DICT_UPDATE FOR_ITER LIST_APPEND LIST_EXTEND MAP_ADD "
        "SET_ADD STORE_ATTR STORE_SUBSCR",
    }.items()
    for name in names.split()
}


class _LoggedGraph(NamedTuple):
    """A graph of the attempt under way: its number in the trail, and where each of its nodes stands there."""

    number: int
    places: dict[Any, int]


class Recorder:
    """Adds a row to `trail` for each instruction it is told of."""

    def __init__(self) -> None:
        self.trail = Trail()
        self._rows = 0
        self._add = self.trail.add
        self._under_way: list[int] = []  # rows of instructions that are being traced, outermost first
        self.after = self._under_way.pop
        self._mark = f"_dynx_recorded_{id(self)}"
        self._codes: dict[int, tuple[int, array[int]]] = {}  # by identity, since hashing code takes long; the trail keeps it
        self._constants: dict[int, int] = {}
        self._newest: tuple[int, int, int, int] | None = None  # progress
        self._newest_number = NOTHING

    def before(self, tx: Any) -> int:
        """Write down the state before the next instruction of a frame, which `after` ends; gives the number of its row."""
        under_way = self._under_way
        row = self._write(tx, under_way[-1] if under_way else self.row_of(getattr(tx, "parent", None)), tx.instruction_pointer)
        under_way.append(row)
        return row

    def close(self) -> None:
        """Let go of everything of torch."""
        self._under_way.clear()

    def row_of(self, tx: Any, *, calls: bool = True) -> int:
        """Give the row of the instruction at which a frame stands, also of one whose instructions were not written down.

        Such a frame `calls` the one that is being traced, or is that one, about to go on.
        """
        if tx is None:
            return NOTHING
        frame = getattr(tx, self._mark, None)
        if frame is not None:
            return int(frame.row)
        return self._write(tx, self.row_of(getattr(tx, "parent", None)), tx.instruction_pointer - calls)

    def _write(self, tx: Any, caller: int, pointer: int) -> int:
        frame = getattr(tx, self._mark, None) or self._enter(tx)
        number, last = self._rows, tx.current_instruction
        effect = _EFFECTS.get(last.opname)
        if frame.row != number - 1 or number == 0:  # other frames were traced meanwhile, or this is its first row
            effect = "change" if effect in ("look", "change") and frame.row != NOTHING else None
        elif last.opname == "CALL" and frame.has_only_looked(last):
            effect = "look"
        if effect == "move":
            frame.moved(tx, last)
        elif effect == "store" or effect == "cells":
            if frame.stored(tx, last.argval if effect == "store" else None):
                self._rename(frame, tx.output.tracers[-1].graph)
        elif effect != "idle":
            changes, guards = frame.changes, frame.guards
            if effect is None or not _is_as_before(frame):
                self._read_progress(tx, frame)
            if frame.changes != changes:
                level = TENSOR
            elif effect != "look":
                level = ITEMS
            else:
                level = OPEN if frame.guards != guards else NEVER
            frame.read_stack(tx, level, last.argval if last.opname == "LOAD_DEREF" and level == NEVER else None)
            if effect is None:
                frame.read_locals(tx, reread=True)
            elif level != NEVER:
                frame.reread_locals(tx, level)
        place = frame.places[pointer]
        if place == NOTHING:
            place = frame.places[pointer] = self._place(tx, pointer)
        frame.row, frame.place, self._rows = number, place, number + 1
        frame.attempt.rows += 1
        stack = frame.stack
        outer, top = NOTHING if frame.is_root else caller, stack[-1][3] if stack else NOTHING
        self._add(pack_row(frame.number, place, outer, top, frame.bindings, frame.progress))
        return number

    def _enter(self, tx: Any) -> RecordedFrame:
        trail, output = self.trail, tx.output
        known = getattr(output, self._mark, None)
        if known is None:  # kept there: it ends with the attempt, as frames do with their translators
            known = trail.begin(*translator.trace_id()), {}, ValueTexts(trail)
            setattr(output, self._mark, known)
        attempt, graphs, value_texts = known
        known = self._codes.get(id(tx.f_code))
        if known is None:
            known = self._codes[id(tx.f_code)] = (len(trail.codes), array("i", [NOTHING]) * len(tx.instructions))
            trail.codes.append(line_hook.traced_code(tx))
        number = trail.add_frame(known[0], attempt.number, attempt.frames)
        frame = RecordedFrame(trail, number, attempt, graphs, value_texts, known[1], self._constants)
        attempt.frames += 1
        frame.is_root = getattr(tx, "parent", None) is None
        setattr(tx, self._mark, frame)
        return frame

    def _read_progress(self, tx: Any, frame: RecordedFrame) -> None:
        """Count nodes and guards, and see what exception is under way."""
        output, attempt = tx.output, frame.attempt
        graph, context, handled = output.tracers[-1].graph, output.tracing_context, tx.exn_vt_stack
        shape_env, guards = context.fake_mode.shape_env, context.guards_context.dynamo_guards.inner
        nodes, asked, shapes = graph._len, len(guards), shape_env.guards
        logged = frame.graphs.get(graph)
        if logged is None or nodes != len(logged.places):
            any_may = bool(shape_env.var_to_range)  # symbolic sizes are replaced when more is known of them
            logged = frame.graphs[graph] = self._read_nodes(graph, logged, attempt, any_may)
        if len(shapes) != attempt.shape_guards:
            attempt.changes += 1
            attempt.shapes.extend((self.trail.text(str(each.expr)), self._rows - 1) for each in shapes[attempt.shape_guards :])
            attempt.shape_guards = len(shapes)
        if asked * 3 != len(attempt.guards):
            self._read_guards(guards, attempt)
        is_calm = handled._current_exception is None and not len(handled)
        reached = (logged.number, nodes, asked, NOTHING if is_calm else self._exception(tx))
        if reached != self._newest:
            self._newest, self._newest_number = reached, self.trail.add_progress(reached)
        frame.nodes, frame.guards, frame.progress = nodes, asked, self._newest_number
        frame.changes = attempt.changes
        frame.counted = graph, guards, shapes, handled if is_calm else None

    def _read_nodes(self, graph: Any, logged: _LoggedGraph | None, attempt: Attempt, any_may: bool) -> _LoggedGraph:
        """Write down the nodes that are new, in the order they came; begin anew when some were taken away.

        Counts as changes of the attempt those that may change a tensor, all where `any_may`.

        Torch: a linked list whose root follows the last; inputs are put among the first.
        """
        if logged is None or graph._len < len(logged.places):
            logged = _LoggedGraph(len(self.trail.graphs), {})
            self.trail.graphs.append(array("i"))
            attempt.changes += 1
        known, node, added = logged.places, graph._root._prev, []
        while node is not graph._root and node not in known:
            added.append(node)
            node = node._prev
        node = graph._root._next
        while len(known) + len(added) < graph._len and node is not graph._root:
            if node not in known:
                added.append(node)
            node = node._next
        log = self.trail.graphs[logged.number]
        for each in reversed(added):
            known[each] = len(log)
            log.append(self.trail.text(_node_text(each)))
            attempt.changes += any_may or may_change_tensors(each)
        return logged

    def _rename(self, frame: RecordedFrame, graph: Any) -> None:
        """Torch names a tensor after the variable that it is assigned to."""
        logged, node = frame.graphs.get(graph), graph._root._prev
        if logged is not None and node in logged.places:
            log, place = self.trail.graphs[logged.number], logged.places[node]
            if not self.trail.texts[log[place]].startswith(f"{node.name} ="):
                log[place] = self.trail.text(_node_text(node))

    def _read_guards(self, guards: Any, attempt: Attempt) -> None:
        """Write down the newest guards. Torch: an `OrderedSet`."""
        text, asked_by = self.trail.text, self._rows - 1 if attempt.rows else NOTHING
        new = [*islice(reversed(guards), len(guards) - len(attempt.guards) // 3)]
        for guard in reversed(new):
            attempt.guards.extend((text(guard.create_fn_name()), text(guard_source(guard.originating_source)), asked_by))

    def _exception(self, tx: Any) -> int:
        handled = tx.exn_vt_stack
        if handled._current_exception is not None:
            return self.trail.text(f"raised {show(tx, handled._current_exception)}")
        return self.trail.text(f"handling {show(tx, handled[-1])}")

    def _place(self, tx: Any, index: int) -> int:
        instruction = tx.instructions[index]
        positions = instruction.positions
        text = translator.instruction_text(instruction)
        if positions is None or positions.lineno is None:
            line = tx.lineno if tx.lineno > 0 else tx.f_code.co_firstlineno
            return self.trail.add_instruction(index, text, line, None, None)
        end = positions.end_col_offset if positions.end_lineno == positions.lineno else None
        return self.trail.add_instruction(index, text, positions.lineno, positions.col_offset, end)


def _is_as_before(frame: RecordedFrame) -> bool:
    """Tell whether nothing was counted since the frame's last row, and no exception is under way."""
    graph, guards, shapes, handled = frame.counted
    return bool(
        handled is not None
        and graph._len == frame.nodes
        and len(guards) == frame.guards
        and len(shapes) == frame.attempt.shape_guards
        and handled._current_exception is None
        and not len(handled)
    )


def _node_text(node: Any) -> str:
    """Write an operation of the graph as a line of code."""
    args = [str(each) for each in node.args]
    named = [f"{name}={each}" for name, each in node.kwargs.items()]
    if node.op == "placeholder":
        return f"{node.name} = input {node.target}"
    if node.op == "get_attr":
        return f"{node.name} = self.{node.target}"
    if node.op == "call_method":
        return f"{node.name} = {args[0]}.{node.target}({', '.join([*args[1:], *named])})"
    if node.op == "output":
        return f"return {', '.join(args)}"
    return f"{node.name} = {_target(node.target)}({', '.join([*args, *named])})"


@cache
def _target(target: Any) -> str:
    name = getattr(target, "__name__", None)
    if name is None or not hasattr(target, "__module__"):
        return str(target)
    module = (target.__module__ or "torch").removeprefix("_")
    return f"{module}.{name}"
