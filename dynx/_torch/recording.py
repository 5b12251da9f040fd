"""Write down what the tracer knows before each instruction, without changing it.

Torch: `stack`, `symbolic_locals` and `exn_vt_stack` of `InstructionTranslatorBase`, `graph` and `guards` of `OutputGraph`;
alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from array import array
from functools import cache
from itertools import islice
from types import CodeType
from typing import Any

from dynx._torch import line_hook, translator
from dynx._torch.guards import guard_source
from dynx._torch.rendering import show
from dynx._torch.variables import cell_content, example_of, is_kind, is_lazy, items_of, settled
from dynx._trail import NOTHING, Attempt, Frame, Place, Trail

# instructions that change no value unless they run traced code
_QUIET = frozenset(
    "BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SLICE BUILD_STRING BUILD_TUPLE CACHE COMPARE_OP "  # noqa: SIM905
    "CONTAINS_OP COPY EXTENDED_ARG FORMAT_VALUE GET_ITER IS_OP JUMP_BACKWARD JUMP_FORWARD KW_NAMES LOAD_ATTR LOAD_CLOSURE "
    "LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD MAKE_FUNCTION NOP "
    "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE "
    "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE "
    "POP_JUMP_IF_TRUE POP_TOP PRECALL PUSH_NULL RESUME RETURN_VALUE STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST "
    "SWAP UNPACK_SEQUENCE COPY_FREE_VARS MAKE_CELL".split()
)
_ASSIGNING = frozenset({"STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "COPY_FREE_VARS", "MAKE_CELL"})
_FIXED, _TENSOR, _OPEN = range(3)  # a value whose text stays, may change when the graph grows, may change at any time


class _Attempt:
    """What is known of an attempt while it is under way; lives on its OutputGraph and ends with it."""

    __slots__ = ("frames", "graphs", "record")

    def __init__(self, record: Attempt) -> None:
        self.record = record
        self.frames = 0
        self.graphs: dict[Any, int] = {}  # to their numbers


class _Frame:
    """What is known of a frame while it is traced; lives on its translator and ends with it."""

    __slots__ = (
        "attempt",
        "bindings",
        "cells",
        "is_root",
        "kinds",
        "links",
        "nodes",
        "number",
        "places",
        "row",
        "stack",
        "stack_texts",
        "texts",
        "values",
    )

    def __init__(self, number: int, attempt: _Attempt, places: array[int]) -> None:
        self.number, self.attempt, self.places = number, attempt, places
        self.is_root = False
        self.row = -2  # the last one; before the first one none comes right after it
        self.nodes = 0  # of the graph then
        self.stack: list[Any] = []
        self.stack_texts: list[int] = []
        self.links: list[int] = []
        self.values: dict[str, Any] = {}
        self.texts: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.cells: set[str] = set()
        self.bindings = NOTHING


class Recorder:
    """Adds a row to `trail` for each instruction it is told of."""

    def __init__(self) -> None:
        self.trail = Trail()
        self._rows = 0
        self._under_way: list[int] = []  # rows of instructions that are being traced, outermost first
        self._mark = f"_dynx_recorded_{id(self)}"
        self._codes: dict[CodeType, tuple[int, array[int]]] = {}

    def before(self, tx: Any) -> int:
        """Write down the state before the next instruction of a frame, which `after` ends; gives the number of its row."""
        caller = self._under_way[-1] if self._under_way else self.row_of(getattr(tx, "parent", None))
        row = self._write(tx, caller, tx.instruction_pointer)
        self._under_way.append(row)
        return row

    def after(self) -> None:
        self._under_way.pop()

    def row_of(self, tx: Any, *, calls: bool = True) -> int:
        """Give the row of the instruction at which a frame stands, also of one whose instructions were not written down.

        Such a frame `calls` the one that is being traced, or is that one, about to go on.
        """
        if tx is None:
            return NOTHING
        frame = vars(tx).get(self._mark)
        if frame is not None:
            return int(frame.row)
        return self._write(tx, self.row_of(getattr(tx, "parent", None)), tx.instruction_pointer - calls)

    def _write(self, tx: Any, caller: int, pointer: int) -> int:
        frame = vars(tx).get(self._mark) or self._enter(tx)
        trail, attempt, output, last = self.trail, frame.attempt, tx.output, tx.current_instruction
        record = attempt.record
        number = self._rows
        graph = output.graph
        length = graph._len
        quiet = frame.row == number - 1 and last.opname in _QUIET
        assigning = last.opname in _ASSIGNING
        grown = length != frame.nodes
        self._read_stack(tx, frame, quiet, grown)
        if assigning or not quiet:
            self._read_locals(tx, frame, quiet, grown)
        known = attempt.graphs.get(graph)
        if known is None:
            known = attempt.graphs[graph] = len(trail.graphs)
            trail.graphs.append(array("i"))
        nodes = trail.graphs[known]
        if length != len(nodes) or assigning:  # torch renames what is assigned
            self._read_nodes(graph, nodes)
        guards = output.guards.inner
        if len(guards) != len(record.guards) // 3:
            self._read_guards(guards, record.guards, number - 1 if record.rows else NOTHING)
        handled = tx.exn_vt_stack
        exception = NOTHING if handled._current_exception is None and not len(handled) else self._exception(tx)
        place = frame.places[pointer]
        if place == NOTHING:
            place = frame.places[pointer] = self._place(tx, pointer)
        frame.row, frame.nodes, self._rows = number, length, number + 1
        record.rows += 1
        top = frame.links[-1] if frame.links else NOTHING
        outer = NOTHING if frame.is_root else caller
        trail.add((frame.number, place, outer, top, frame.bindings, known, length, len(guards), exception))
        return number

    def _enter(self, tx: Any) -> _Frame:
        trail, output = self.trail, tx.output
        attempt = vars(output).get(self._mark)
        if attempt is None:
            attempt = _Attempt(trail.begin(*translator.trace_id()))
            setattr(output, self._mark, attempt)
        known = self._codes.get(tx.f_code)
        if known is None:
            known = self._codes[tx.f_code] = (len(trail.codes), array("i", [NOTHING]) * len(tx.instructions))
            trail.codes.append(line_hook.traced_code(tx))
        frame = _Frame(len(trail.frames), attempt, known[1])
        frame.is_root = getattr(tx, "parent", None) is None
        trail.frames.append(Frame(known[0], attempt.record.number, attempt.frames))
        attempt.frames += 1
        setattr(tx, self._mark, frame)
        return frame

    def _read_stack(self, tx: Any, frame: _Frame, quiet: bool, grown: bool) -> None:
        known, texts, stack = frame.stack, frame.stack_texts, tx.stack
        same = 0
        for before, now in zip(known, stack):  # noqa: B905 - they differ in length
            if before is not now:
                break
            if not quiet and (kind := _kind(now)) != _FIXED and (grown or kind == _OPEN) and self._text(tx, now) != texts[same]:
                break
            same += 1
        if same == len(stack) == len(known):
            return
        links, trail = frame.links, self.trail
        del known[same:], texts[same:], links[same:]
        below = links[-1] if links else NOTHING
        argument: Any = tx.current_instruction.argval if quiet else None  # of LOAD_FAST
        for value in stack[same:]:
            text = frame.texts.get(argument) if frame.values.get(argument) is value else None
            if text is None:
                text = self._text(tx, value)
            below = trail.push(below, text)
            known.append(value)
            texts.append(text)
            links.append(below)

    def _read_locals(self, tx: Any, frame: _Frame, quiet: bool, grown: bool) -> None:
        values, texts, kinds, trail = frame.values, frame.texts, frame.kinds, self.trail
        variables = tx.symbolic_locals
        passed = self._passed(tx) if not values else None
        for name, value in variables.items():
            kind = kinds.get(name)
            if kind is None and is_kind(value, "CellVariable"):
                frame.cells.add(name)
            if name in frame.cells:
                value = cell_content(tx, value) or value
            if values.get(name) is value and (quiet or kind == _FIXED or (kind == _TENSOR and not grown)):
                continue
            values[name] = value
            kinds[name] = _kind(value)
            if name.startswith(translator.HIDDEN):
                continue
            text = passed.get(id(value)) if passed else None
            if text is None:
                text = self._text(tx, value)
            if texts.get(name) != text:
                texts[name] = text
                frame.bindings = trail.bind(frame.bindings, trail.text(name), text)
        if len(values) != len(variables):
            for name in [each for each in values if each not in variables]:
                del values[name]
                if texts.pop(name, None) is not None:
                    frame.bindings = trail.bind(frame.bindings, trail.text(name), NOTHING)

    def _passed(self, tx: Any) -> dict[int, int]:
        """Give the texts of what the caller has on its stack: what it passes on is among it."""
        caller = vars(tx.parent).get(self._mark) if getattr(tx, "parent", None) is not None else None
        return {} if caller is None else dict(zip(map(id, caller.stack), caller.stack_texts, strict=True))

    def _text(self, tx: Any, value: Any) -> int:
        return self.trail.text(show(tx, value))

    def _read_nodes(self, graph: Any, nodes: array[int]) -> None:
        text = self.trail.text
        newest = graph._root._prev
        if nodes and graph._len == len(nodes):
            if not self.trail.texts[nodes[-1]].startswith(f"{newest.name} ="):
                nodes[-1] = text(_node_text(newest))
            return
        del nodes[graph._len :]
        added = []
        for _ in range(graph._len - len(nodes)):
            added.append(text(_node_text(newest)))
            newest = newest._prev
        nodes.extend(added[::-1])

    def _read_guards(self, guards: Any, known: array[int], asked_by: int) -> None:
        text = self.trail.text
        for guard in [*islice(reversed(guards), len(guards) - len(known) // 3)][::-1]:
            known.extend((text(guard.create_fn_name()), text(guard_source(guard.originating_source)), asked_by))

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
            return self.trail.add_place(Place(index, text, tx.lineno, None, None))
        end = positions.end_col_offset if positions.end_lineno == positions.lineno else None
        return self.trail.add_place(Place(index, text, positions.lineno, positions.col_offset, end))


def _kind(value: Any) -> int:
    """Say when the text of a value may change."""
    if is_kind(value, "ConstantVariable"):
        return _FIXED
    value = settled(value)
    if is_lazy(value) or is_kind(value, "CellVariable") or items_of(value) is not None:
        return _OPEN
    return _FIXED if example_of(value) is None else _TENSOR


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
