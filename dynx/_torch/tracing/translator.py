"""The place Dynamo has reached while it traces, and what it knows there.

Torch: attributes of `InstructionTranslatorBase` (called `tx` there and here) and of its `OutputGraph`; those used here are
alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.stack import RawFrame

# names that torch and Python make up
HIDDEN = ("___", "__nested_resume_fns", "__nested_frame_values", "__is_tracing_resume_prologue", ".", "implicit")


class TraceId(NamedTuple):
    """Which compilation is under way, and which attempt at it."""

    compile_id: str
    attempt: int


def trace_id() -> TraceId:
    """Torch: `CompileContext.current_trace_id()`, set before each attempt."""
    from torch._guards import CompileContext

    found = CompileContext.current_trace_id()
    return TraceId("", 0) if found is None else TraceId(str(found.compile_id), found.attempt)


def chain(tx: Any) -> Iterator[Any]:
    """Give this translator and those that inlined it, innermost first."""
    while tx is not None:
        yield tx
        tx = getattr(tx, "parent", None)


def place(tx: Any) -> RawFrame:
    """Give the instruction's place in the source, with columns where Python has them."""
    positions = getattr(tx.current_instruction, "positions", None)
    line = tx.lineno if positions is None or positions.lineno is None else positions.lineno
    code = tx.f_code
    if positions is None:
        return RawFrame(code.co_filename, line, user_name(code.co_qualname))
    end = positions.end_col_offset if positions.end_lineno == positions.lineno else None
    return RawFrame(code.co_filename, line, user_name(code.co_qualname), positions.col_offset, end)


def local_variables(tx: Any) -> dict[str, Any]:
    """Give the locals by the user's names."""
    return {name: each for name, each in tx.symbolic_locals.items() if not name.startswith(HIDDEN)}


def is_resume(tx: Any) -> bool:
    """Tell whether this is the rest of a function after a graph break."""
    return bool(tx.f_code.co_name.startswith("torch_dynamo_resume_in_"))


def is_generator(tx: Any) -> bool:
    return any(base.__name__ == "InliningGeneratorInstructionTranslator" for base in type(tx).__mro__)


def in_subgraph(tx: Any) -> bool:
    """Tell whether the body of a higher-order operator (cond, scan, checkpoint) is being traced."""
    return tx.output.current_tracer is not tx.output.root_tracer


def code_of(tx: Any) -> CodeType:
    return tx.f_code


def disassembly(tx: Any) -> str:
    """Disassemble the code being traced, with an arrow at the instruction."""
    offset = tx.instructions[tx.instruction_pointer].offset
    return dis.Bytecode(tx.f_code, current_offset=offset).dis()


def backtrace(tx: Any) -> list[Any]:
    """Give the `FrameSummary` of every symbolic frame, outermost first, by the user's names of functions."""
    summaries = [each.frame_summary() for each in chain(tx)]
    for summary in summaries:
        summary.name = user_name(summary.name)
    return summaries[::-1]


def attempt_ends(tx: Any, call: Callable[[], None]) -> None:
    """Have `call` run when the attempt under way ends, well or not.

    Torch: `OutputGraph.add_cleanup_hook`, run in the `finally` of `convert_frame.transform`.
    """
    tx.output.add_cleanup_hook(call)


def can_break_here(tx: Any) -> bool:
    """Tell whether a graph that breaks in this frame goes on in this frame.

    Torch: `should_compile_partial_graph`, False for inlined frames, whose caller breaks instead.
    """
    return getattr(tx, "parent", None) is None or bool(tx.should_compile_partial_graph())


def has_nothing_to_compile(raised: BaseException) -> bool:
    """Tell whether torch gave a frame up for want of operations: it runs as it is, and nothing is wrong.

    Torch: `SkipFrame` with a text of its own, alike in 2.11, 2.13 and 2.15.
    """
    return type(raised).__name__ == "SkipFrame" and "No ops traced" in str(raised)


def output_key(tx: Any) -> Any:
    """Give the object that lives exactly as long as one attempt."""
    return tx.output


def graph_code(tx: Any, *, verbose: bool) -> str:
    """Print the graph traced so far as Python code."""
    return str(tx.output.graph.python_code("self", verbose=verbose).src)


def node_count(tx: Any) -> int:
    return len(tx.output.graph.nodes)


def instruction_text(instruction: Any) -> str:
    """Write an instruction as a disassembly does: `CALL 1`, `LOAD_FAST x`."""
    argument = instruction.argval if isinstance(instruction.argval, (str, int, float, bool)) else instruction.arg
    return str(instruction.opname) if argument is None else f"{instruction.opname} {argument}"
