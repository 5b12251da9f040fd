"""Record the state of Dynamo's tracer before each instruction, without changing the trace, as rows of a `Trail`.

Torch: `current_instruction`, `instruction_pointer` and `instructions` of `InstructionTranslatorBase`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from dynx._bytecode.trail import NOTHING, Trail, pack_row
from dynx._torch.trace_log.frame import RecordedFrame
from dynx._torch.trace_log.progress import AttemptProgress
from dynx._torch.trace_log.value_text import FIXED, ITEMS, Text
from dynx._torch.tracing import line_hook, translator

# what an instruction may do: "idle": nothing; "move": change the stack; "store": assign one local; "cells": assign any locals;
# "read": read values; "build": mutate a container on the stack that nothing else references; "change": mutate any value. The
# last three may also run traced code. An instruction in none of the lists may do anything.
_EFFECTS: Mapping[str, str] = {
    name: effect
    for effect, names in {
        "idle": "CACHE EXTENDED_ARG JUMP_BACKWARD JUMP_FORWARD KW_NAMES NOP PRECALL RESUME",
        "move": "COPY LOAD_CLOSURE LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST POP_TOP PUSH_NULL SWAP",
        "store": "STORE_FAST",
        "cells": "COPY_FREE_VARS MAKE_CELL STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST",
        "read": "BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE BUILD_STRING BUILD_TUPLE COMPARE_OP "
        "CONTAINS_OP FORMAT_VALUE GET_ITER IS_OP JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP LIST_TO_TUPLE "
        "LOAD_ATTR LOAD_DEREF LOAD_GLOBAL LOAD_METHOD MAKE_FUNCTION "
        "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE "
        "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE "
        "POP_JUMP_IF_TRUE RETURN_VALUE TO_BOOL UNARY_NOT UNPACK_SEQUENCE",
        "build": "DICT_MERGE DICT_UPDATE LIST_APPEND LIST_EXTEND MAP_ADD SET_ADD SET_UPDATE",
        "change": "BINARY_OP CALL CALL_FUNCTION_EX CALL_KW FOR_ITER STORE_ATTR STORE_SUBSCR",
    }.items()
    for name in names.split()
}


class Recorder:
    """A recorder of the tracer's state; `add_row` adds a row to the log `trail` for an instruction that Dynamo traces."""

    def __init__(self) -> None:
        self.trail = Trail()
        self.under_way: list[Any] = []  # translators inside a `step`, outermost first; the caller maintains it
        self._rows = 0
        self._add = self.trail.add
        self._mark = f"_dynx_recorded_{id(self)}"
        # by id(), since hashing code objects is slow; the trail keeps them alive
        self._codes: dict[int, tuple[int, array[int]]] = {}
        self._constants: dict[int, Text] = {}

    def close(self) -> None:
        """Drop the references to InstructionTranslators."""
        self.under_way.clear()

    def row_of(self, tx: Any, *, calls: bool = True) -> int:
        """Return the number of a symbolic frame's latest row in the log (`trail`); if the frame has no row, add one.

        The added row is for the call that Dynamo inlines in this frame, or with `calls=False` for the next instruction.
        """
        if tx is None:
            return NOTHING
        frame = getattr(tx, self._mark, None)
        if frame is not None:
            return int(frame.row)
        return self.add_row(tx, self.row_of(getattr(tx, "parent", None)), tx.instruction_pointer - calls)

    def add_row(self, tx: Any, caller: int | None = None, pointer: int | None = None) -> int:
        """Record a row with the state of a symbolic frame before an instruction, and return the row's number.

        Called for each instruction, so it must be fast. `caller` is the row of the instruction that inlines the frame (None:
        the latest row of the innermost traced frame); `pointer` is the index of the instruction (None: the next one).
        """
        frame, number, last = getattr(tx, self._mark, None), self._rows, tx.current_instruction
        effect = _EFFECTS.get(last.opname)
        if frame is not None and frame.row == number - 1:
            if effect == "read" or (effect == "change" and frame.has_only_read(last)):
                if frame.progress.is_unchanged_by_reading(tx):
                    frame.read_top(tx)
                else:
                    self._update(tx, frame, "read")
            elif effect == "move":
                frame.update_after_move(tx, last)
            elif effect == "build" and frame.progress.is_unchanged_by_reading(tx):
                frame.read_built(tx, last.arg)
            elif effect == "build" or effect == "change" or effect is None:
                self._update(tx, frame, effect)
            elif effect != "idle" and frame.update_after_store(tx, last.argval if effect == "store" else None):
                frame.progress.rename_newest_node(tx)
        else:  # the frame's first row, or Dynamo has traced other frames since its last row
            is_new, frame = frame is None, frame or self._enter(tx)
            if not frame.is_root:
                frame.caller = self.row_of(self.under_way[-1] if self.under_way else tx.parent) if caller is None else caller
                number = self._rows
            if is_new:
                frame.progress.update(tx, number)
                if frame.caller != number - 1:  # else nothing was traced since the caller's row
                    frame.texts.may_have_changed(ITEMS)
                frame.read_first(tx)
            elif effect == "read" or (effect == "change" and frame.has_only_traced(last)):
                self._update(tx, frame, "read")
            else:
                self._update(tx, frame, effect if effect in ("build", "change") else None)
        if pointer is None:
            pointer = tx.instruction_pointer
        location = frame.locations[pointer]
        if location == NOTHING:
            location = frame.locations[pointer] = self._location(tx, pointer)
        frame.row, frame.location, self._rows = number, location, number + 1
        progress, stack = frame.progress, frame.stack
        progress.attempt.rows += 1
        top = stack[-1][2] if stack else NOTHING
        self._add(pack_row(frame.number, location, frame.caller, top, frame.bindings, progress.number))
        return number

    def _update(self, tx: Any, frame: RecordedFrame, effect: str | None) -> None:
        """Record the values that the last instruction may have changed: `effect` is its kind, or None for unknown effects."""
        frame.progress.update(tx, self._rows)
        texts = frame.texts
        if effect != "read" or frame.progress.has_exception:
            texts.may_have_changed(ITEMS)
        level = frame.changed_level()
        if level == FIXED:
            frame.read_top(tx)
            return
        frame.read_stack(tx, level)
        if effect is None:
            frame.read_locals(tx, reread=True)
        else:
            frame.reread_locals(tx, level)

    def _enter(self, tx: Any) -> RecordedFrame:
        trail, output = self.trail, tx.output
        progress = getattr(output, self._mark, None)
        if progress is None:  # stored on the `OutputGraph`, so that it is freed with the attempt
            progress = AttemptProgress(trail, trail.begin(*translator.trace_id()))
            setattr(output, self._mark, progress)
        attempt = progress.attempt
        of_code = self._codes.get(id(tx.f_code))
        if of_code is None:
            of_code = self._codes[id(tx.f_code)] = (len(trail.codes), array("i", [NOTHING]) * len(tx.instructions))
            trail.codes.append(line_hook.traced_code(tx))
        number = trail.add_frame(of_code[0], attempt.number, attempt.frames)
        attempt.frames += 1
        is_root = getattr(tx, "parent", None) is None
        frame = RecordedFrame(trail, number, progress, of_code[1], self._constants, is_root=is_root)
        setattr(tx, self._mark, frame)
        return frame

    def _location(self, tx: Any, index: int) -> int:
        instruction = tx.instructions[index]
        positions = instruction.positions
        text = translator.instruction_text(instruction)
        if positions is None or positions.lineno is None:
            line = tx.lineno if tx.lineno > 0 else tx.f_code.co_firstlineno
            return self.trail.add_instruction(index, text, line, None, None)
        end = positions.end_col_offset if positions.end_lineno == positions.lineno else None
        return self.trail.add_instruction(index, text, positions.lineno, positions.col_offset, end)
