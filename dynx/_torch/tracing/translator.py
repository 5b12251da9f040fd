"""Read the instruction that Dynamo is tracing, and the state of its symbolic frame.

Torch: attributes of `InstructionTranslatorBase` (`tx`) and of its `OutputGraph`.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dynx._torch.compilation.frame import user_name
from dynx._torch.tracing.render import short_names
from dynx._torch.tracing.stack import RawFrame

# prefixes of the names of variables that torch and Python create
HIDDEN = ("___", "__nested_resume_fns", "__nested_frame_values", "__is_tracing_resume_prologue", ".", "implicit")


class TraceId(NamedTuple):
    """The compile id of a compilation, and the number of its tracing attempt, which grows when Dynamo restarts."""

    compile_id: str
    attempt: int


def trace_id() -> TraceId:
    """Return the compile id and attempt number of the current trace. Torch: `CompileContext.current_trace_id()`."""
    from torch._guards import CompileContext

    current = CompileContext.current_trace_id()
    return TraceId("", 0) if current is None else TraceId(str(current.compile_id), current.attempt)


def chain(tx: Any) -> Iterator[Any]:
    """Yield this InstructionTranslator and those that inline it, innermost first."""
    while tx is not None:
        yield tx
        tx = getattr(tx, "parent", None)


def location(tx: Any) -> RawFrame:
    """Return the source location of the current instruction, with columns where Python has them."""
    positions = getattr(tx.current_instruction, "positions", None)
    line = tx.lineno if positions is None or positions.lineno is None else positions.lineno
    code = tx.f_code
    if positions is None:
        return RawFrame(code.co_filename, line, user_name(code.co_qualname))
    end = positions.end_col_offset if positions.end_lineno == positions.lineno else None
    return RawFrame(code.co_filename, line, user_name(code.co_qualname), positions.col_offset, end)


def local_variables(tx: Any) -> dict[str, Any]:
    """Return the symbolic variables of the user's locals, without those that torch and Python create."""
    return {name: variable for name, variable in tx.symbolic_locals.items() if not name.startswith(HIDDEN)}


def is_resume(tx: Any) -> bool:
    """Return whether a symbolic frame traces a resume function."""
    return bool(tx.f_code.co_name.startswith("torch_dynamo_resume_in_"))


def is_generator(tx: Any) -> bool:
    """Return whether a symbolic frame is a generator that Dynamo inlines."""
    return any(base.__name__ == "InliningGeneratorInstructionTranslator" for base in type(tx).__mro__)


def in_subgraph(tx: Any) -> bool:
    """Return whether the body of a higher-order operator (cond, scan, checkpoint) or of a function transform is being traced.

    Torch: transforms (`vmap`, `grad`) have no graph of their own, but a level on functorch's stack.
    """
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    output = tx.output
    has_transform = len(retrieve_all_functorch_interpreters()) > len(output.functorch_layers)
    return output.current_tracer is not output.root_tracer or has_transform


def disassembly(tx: Any) -> str:
    """Return the disassembly of the traced code, with an arrow at the current instruction."""
    offset = tx.instructions[tx.instruction_pointer].offset
    return dis.Bytecode(tx.f_code, current_offset=offset).dis()


def backtrace(tx: Any) -> list[Any]:
    """Return the `FrameSummary` of every symbolic frame, outermost first; resume functions are named as the user's function."""
    summaries = [frame.frame_summary() for frame in chain(tx)]
    for summary in summaries:
        summary.name = user_name(summary.name)
    return summaries[::-1]


def attempt_ends(tx: Any, call: Callable[[], None]) -> None:
    """Register a function to call when the current tracing attempt ends, successfully or not.

    Torch: `OutputGraph.add_cleanup_hook`. Torch runs these hooks when the attempt ends (`convert_frame.trace_frame`), but also
    right before it calls the backend, which may fail. At that point `call` is not run, but registered again.
    """
    output = tx.output

    def cleanup() -> None:
        if sys._getframe(2).f_code.co_name == "compile_and_call_fx_graph":
            before_backend(output, lambda gm: output.add_cleanup_hook(call))
        else:
            call()

    output.add_cleanup_hook(cleanup)


def before_backend(output: Any, call: Callable[[Any], None]) -> None:
    """Call `call` with each graph that `output` is about to pass to the backend; this replaces `output.call_user_compiler`."""
    compile_graph = output.call_user_compiler

    def call_user_compiler(gm: Any, *args: Any, **kwargs: Any) -> Any:
        call(gm)
        return compile_graph(gm, *args, **kwargs)

    output.call_user_compiler = call_user_compiler


def raises_at_breaks(tx: Any) -> bool:
    """Return whether a graph break raises, because of `fullgraph=True` or `torch._dynamo.error_on_graph_break`."""
    return bool(tx.one_graph or tx.error_on_graph_break)


def can_break_here(tx: Any) -> bool:
    """Return whether a graph break in this symbolic frame resumes in the same frame, rather than in its caller.

    Torch: `should_compile_partial_graph`, False for inlined frames, whose caller breaks instead.
    """
    return getattr(tx, "parent", None) is None or bool(tx.should_compile_partial_graph())


def has_nothing_to_compile(raised: BaseException) -> bool:
    """Return whether an exception means that torch skips a frame because it contains no operations."""
    return type(raised).__name__ == "SkipFrame" and "No ops traced" in str(raised)


def output_key(tx: Any) -> Any:
    """Return the `OutputGraph` of the tracing attempt, as a key for the attempt's data: it lives as long as the attempt."""
    return tx.output


def graph_code(tx: Any, *, verbose: bool) -> str:
    """Return the graph traced so far as Python code with short symbol names; `verbose` adds dtypes, shapes and stacks."""
    return short_names(str(tx.output.graph.python_code("self", verbose=verbose).src), tx.output.shape_env)


def node_count(tx: Any) -> int:
    """Return the number of nodes of the graph traced so far."""
    return len(tx.output.graph.nodes)


def instruction_text(instruction: Any) -> str:
    """Return the text of an instruction, as in a disassembly: `CALL 1`, `LOAD_FAST x`."""
    argument = instruction.argval if isinstance(instruction.argval, (str, int, float, bool)) else instruction.arg
    return str(instruction.opname) if argument is None else f"{instruction.opname} {argument}"
