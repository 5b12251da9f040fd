"""Record the state of Dynamo's tracer before each instruction, without changing the trace.

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
from dynx._torch.trace_log.value_text import ITEMS, OPEN, TENSOR, ValueTexts
from dynx._torch.tracing import line_hook, translator
from dynx._torch.tracing.render import show

# what an instruction may do to values: nothing; move them between the stack, locals and constants; read them; mutate them.
# All but the first two may also run traced code; an instruction that is in none of the lists may do anything.

_EFFECTS: Mapping[str, str] = {
    name: effect
    for effect, names in {
        "idle": "CACHE EXTENDED_ARG JUMP_BACKWARD JUMP_FORWARD KW_NAMES NOP PRECALL RESUME",
        "move": "COPY LOAD_CLOSURE LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST POP_TOP PUSH_NULL SWAP",
        "store": "STORE_FAST",
        "cells": "COPY_FREE_VARS MAKE_CELL STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST",
        "read": "BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE BUILD_STRING BUILD_TUPLE COMPARE_OP "
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
    """A graph of the current tracing attempt: its number in the trail, and the index there of each of its nodes."""

    number: int
    indices: dict[Any, int]


class Recorder:
    """A recorder of the tracer's state, which adds a row to `trail` for each instruction that Dynamo traces."""

    def __init__(self) -> None:
        self.trail = Trail()
        self.under_way: list[Any] = []  # the translators whose instruction is being traced, outermost first
        self._rows = 0
        self._add = self.trail.add
        self._mark = f"_dynx_recorded_{id(self)}"
        self._codes: dict[int, tuple[int, array[int]]] = {}  # by id(), since hashing code is slow; the trail keeps it alive
        self._constants: dict[int, int] = {}
        self._newest: tuple[int, int, int, int] | None = None  # progress
        self._newest_number = NOTHING

    def close(self) -> None:
        """Forget the instructions that are still being traced."""
        self.under_way.clear()

    def row_of(self, tx: Any, *, calls: bool = True) -> int:
        """Return the number of a symbolic frame's latest row; if the frame has none yet, add one.

        With `calls`, a frame without a row is taken to be at the instruction that inlines the frame being traced; otherwise
        to be the frame being traced, before its next instruction.
        """
        if tx is None:
            return NOTHING
        frame = getattr(tx, self._mark, None)
        if frame is not None:
            return int(frame.row)
        return self.add_row(tx, self.row_of(getattr(tx, "parent", None)), tx.instruction_pointer - calls)

    def add_row(self, tx: Any, caller: int | None = None, pointer: int | None = None) -> int:
        """Record a row with the state of a symbolic frame before an instruction, and return the row's number.

        Called for each instruction, so it calls few functions.

        Args:
            tx: The frame's translator.
            caller: Row of the instruction that inlines the frame; by default that of the innermost translator `under_way`.
            pointer: Index of the instruction, by default of the next one.
        """
        frame, number, last = getattr(tx, self._mark, None), self._rows, tx.current_instruction
        effect = _EFFECTS.get(last.opname)
        if frame is None or frame.row != number - 1:  # its first row, or other frames were traced since
            effect = "change" if frame is not None and effect in ("read", "change") else None
            frame = frame or self._enter(tx)
            if not frame.is_root:
                frame.caller = self.row_of(self.under_way[-1] if self.under_way else tx.parent) if caller is None else caller
        elif last.opname == "CALL" and frame.has_only_read(last):
            effect = "read"
        if effect == "move":
            frame.update_after_move(tx, last)
        elif effect == "read" or effect == "change" or effect is None:
            self._update(tx, frame, effect, last)
        elif effect != "idle" and frame.update_after_store(tx, last.argval if effect == "store" else None):
            self._rename(frame, tx.output.tracers[-1].graph)
        if pointer is None:
            pointer = tx.instruction_pointer
        location = frame.locations[pointer]
        if location == NOTHING:
            location = frame.locations[pointer] = self._location(tx, pointer)
        frame.row, frame.location, self._rows = number, location, number + 1
        frame.attempt.rows += 1
        stack = frame.stack
        top = stack[-1][3] if stack else NOTHING
        self._add(pack_row(frame.number, location, frame.caller, top, frame.bindings, frame.progress))
        return number

    def _update(self, tx: Any, frame: RecordedFrame, effect: str | None, last: Any) -> None:
        """Record what an instruction may have changed that reads values ("read"), changes them ("change") or does anything."""
        changes, requested = frame.changes, frame.guards
        graph, guards, shapes, handled = frame.counted
        is_unchanged = (
            effect is not None
            and handled is not None
            and graph._len == frame.nodes
            and len(guards) == requested
            and len(shapes) == frame.attempt.shape_guards
            and handled._current_exception is None
            and not len(handled)
        )
        if not is_unchanged:
            self._read_progress(tx, frame)
        if frame.changes != changes:
            level = TENSOR
        elif effect != "read":
            level = ITEMS
        elif frame.guards != requested:
            level = OPEN
        else:
            frame.read_top(tx, last.argval if last.opname == "LOAD_DEREF" else None)
            return
        frame.value_texts.changes += 1
        frame.read_stack(tx, level)
        if effect is None:
            frame.read_locals(tx, reread=True)
        else:
            frame.reread_locals(tx, level)

    def _enter(self, tx: Any) -> RecordedFrame:
        trail, output = self.trail, tx.output
        of_attempt = getattr(output, self._mark, None)
        if of_attempt is None:  # stored there: it ends with the attempt, as frames do with their translators
            attempt = trail.begin(*translator.trace_id())
            of_attempt = attempt, {}, ValueTexts(trail, attempt)
            setattr(output, self._mark, of_attempt)
        attempt, graphs, value_texts = of_attempt
        of_code = self._codes.get(id(tx.f_code))
        if of_code is None:
            of_code = self._codes[id(tx.f_code)] = (len(trail.codes), array("i", [NOTHING]) * len(tx.instructions))
            trail.codes.append(line_hook.traced_code(tx))
        number = trail.add_frame(of_code[0], attempt.number, attempt.frames)
        frame = RecordedFrame(trail, number, attempt, graphs, value_texts, of_code[1], self._constants)
        attempt.frames += 1
        frame.is_root = getattr(tx, "parent", None) is None
        setattr(tx, self._mark, frame)
        return frame

    def _read_progress(self, tx: Any, frame: RecordedFrame) -> None:
        """Record the numbers of graph nodes and guards, and the exception that traced code has raised or is handling."""
        output, attempt = tx.output, frame.attempt
        graph, context, handled = output.tracers[-1].graph, output.tracing_context, tx.exn_vt_stack
        shape_env, guards = context.fake_mode.shape_env, context.guards_context.dynamo_guards.inner
        nodes, requested, shapes = graph._len, len(guards), shape_env.guards
        logged = frame.graphs.get(graph)
        if logged is None or nodes != len(logged.indices):
            any_may = bool(shape_env.var_to_range)  # symbolic sizes are replaced when torch learns more about them
            logged = frame.graphs[graph] = self._read_nodes(graph, logged, attempt, any_may=any_may)
        if len(shapes) != attempt.shape_guards:
            attempt.changes += 1
            attempt.shapes.extend(
                (self.trail.text(str(guard.expr)), self._rows - 1) for guard in shapes[attempt.shape_guards :]
            )
            attempt.shape_guards = len(shapes)
        if requested * 3 != len(attempt.guards):
            self._read_guards(guards, attempt)
        no_exception = handled._current_exception is None and not len(handled)
        progress = (logged.number, nodes, requested, NOTHING if no_exception else self._exception(tx))
        if progress != self._newest:
            self._newest, self._newest_number = progress, self.trail.add_progress(progress)
        frame.nodes, frame.guards, frame.progress = nodes, requested, self._newest_number
        frame.changes = attempt.changes
        frame.counted = graph, guards, shapes, handled if no_exception else None

    def _read_nodes(self, graph: Any, logged: _LoggedGraph | None, attempt: Attempt, *, any_may: bool) -> _LoggedGraph:
        """Record new graph nodes in the order of the graph; record the whole graph again if nodes were removed.

        Nodes that may change an existing tensor count as changes of the attempt; with `any_may` all nodes do.

        Torch: a linked list whose root follows the last node; inputs are inserted among the first.
        """
        if logged is None or graph._len < len(logged.indices):
            logged = _LoggedGraph(len(self.trail.graphs), {})
            self.trail.graphs.append(array("i"))
            attempt.changes += 1
        recorded, node, added = logged.indices, graph._root._prev, []
        while node is not graph._root and node not in recorded:
            added.append(node)
            node = node._prev
        node = graph._root._next
        while len(recorded) + len(added) < graph._len and node is not graph._root:
            if node not in recorded:
                added.append(node)
            node = node._next
        log = self.trail.graphs[logged.number]
        for node in reversed(added):
            recorded[node] = len(log)
            log.append(self.trail.text(_node_text(node)))
            attempt.changes += any_may or may_change_tensors(node)
        return logged

    def _rename(self, frame: RecordedFrame, graph: Any) -> None:
        """Record the new name of the last graph node: Dynamo names a tensor after the variable that it is assigned to."""
        logged, node = frame.graphs.get(graph), graph._root._prev
        if logged is not None and node in logged.indices:
            log, index = self.trail.graphs[logged.number], logged.indices[node]
            if not self.trail.texts[log[index]].startswith(f"{node.name} ="):
                log[index] = self.trail.text(_node_text(node))

    def _read_guards(self, guards: Any, attempt: Attempt) -> None:
        """Record the guards that were added to the attempt since the last call. Torch: an `OrderedSet`."""
        text, requested_by = self.trail.text, self._rows - 1 if attempt.rows else NOTHING
        new = [*islice(reversed(guards), len(guards) - len(attempt.guards) // 3)]
        for guard in reversed(new):
            attempt.guards.extend((text(guard.create_fn_name()), text(guard_source(guard.originating_source)), requested_by))

    def _exception(self, tx: Any) -> int:
        handled = tx.exn_vt_stack
        if handled._current_exception is not None:
            return self.trail.text(f"raised {show(tx, handled._current_exception)}")
        return self.trail.text(f"handling {show(tx, handled[-1])}")

    def _location(self, tx: Any, index: int) -> int:
        instruction = tx.instructions[index]
        positions = instruction.positions
        text = translator.instruction_text(instruction)
        if positions is None or positions.lineno is None:
            line = tx.lineno if tx.lineno > 0 else tx.f_code.co_firstlineno
            return self.trail.add_instruction(index, text, line, None, None)
        end = positions.end_col_offset if positions.end_lineno == positions.lineno else None
        return self.trail.add_instruction(index, text, positions.lineno, positions.col_offset, end)


def _node_text(node: Any) -> str:
    """Return an FX node as a line of code, such as `add = torch.add(x, 1)`."""
    args = [str(argument) for argument in node.args]
    keywords = [f"{name}={argument}" for name, argument in node.kwargs.items()]
    if node.op == "placeholder":
        return f"{node.name} = input {node.target}"
    if node.op == "get_attr":
        return f"{node.name} = self.{node.target}"
    if node.op == "call_method":
        return f"{node.name} = {args[0]}.{node.target}({', '.join([*args[1:], *keywords])})"
    if node.op == "output":
        return f"return {', '.join(args)}"
    return f"{node.name} = {_target(node.target)}({', '.join([*args, *keywords])})"


@cache
def _target(target: Any) -> str:
    name = getattr(target, "__name__", None)
    if name is None or not hasattr(target, "__module__"):
        return str(target)
    module = (target.__module__ or "torch").removeprefix("_")
    return f"{module}.{name}"
