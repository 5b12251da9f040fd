"""Do something at chosen instructions of a function while Dynamo traces it, also break the graph exactly there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any

from dynx._bytecode.statements import Step, step_at
from dynx._bytecode.trail import Code
from dynx._torch.capabilities import require

Do = Callable[[Any], None]


def steps_of(code: CodeType) -> list[Step]:
    """Give the instructions of a function as the user wrote it, as Dynamo traces them.

    Torch: `bytecode_transformation.cleaned_instructions`.
    """
    from torch._dynamo.bytecode_transformation import cleaned_instructions

    return [step_at(each.opname, each.argval, each.positions) for each in cleaned_instructions(code)]


def original_code(code: CodeType) -> CodeType:
    """Give the code that the user wrote; for the rest of a function after a break that of the function.

    Torch: `ContinueExecutionCache.generated_code_metadata`.
    """
    from torch._dynamo.resume_execution import ContinueExecutionCache

    if code not in ContinueExecutionCache.generated_code_metadata:
        return code
    return ContinueExecutionCache.generated_code_metadata[code].code


def traced_code(tx: Any) -> Code:
    """Describe the code of a frame."""
    return Code(tx.f_code, len(tx.instructions), original_code(tx.f_code), resumes_at(tx))


def shifted(code: Code, indices: Iterable[int]) -> tuple[int, ...]:
    """Translate indices into the original instructions to those of the code that is traced.

    The rest of a function is the whole function behind a prologue that jumps to where it goes on; what stands before that
    point is not reached again. Torch itself aligns the two from their ends (`generate_based_on_original_code_object`).
    """
    if code.resumes_at is None:
        return tuple(indices)
    shift = code.length - len(steps_of(code.original))
    return tuple(index + shift for index in indices if index + shift >= code.resumes_at)


def resumes_at(tx: Any) -> int | None:
    """Give the index of the instruction at which the rest of a function goes on; None for a function as the user wrote it."""
    if not tx.f_code.co_name.startswith("torch_dynamo_resume_in_"):
        return None
    prologue = [index for index, each in enumerate(tx.instructions) if each.argval == "__is_tracing_resume_prologue"]
    jump = (
        next((each for each in tx.instructions[prologue[-1] + 1 :] if each.opname.startswith("JUMP")), None)
        if prologue
        else None
    )
    return int(tx.indexof[jump.target]) if jump is not None else None


def at_instructions(tx: Any, actions: Mapping[int, Sequence[Do]]) -> None:
    """Run the actions right before the instructions with these indices, whenever this frame gets there.

    Shadows the class's dispatch table on this one translator; torch looks it up for every instruction inside of the `try`
    that makes graph breaks of exceptions, so an action may break the graph as the program itself may.
    """
    require("breakable", "no_operation")
    if isinstance(tx.dispatch_table, _Dispatch):
        tx.dispatch_table.actions.update(actions)
    else:
        tx.dispatch_table = _Dispatch(tx, dict(actions))


class _Dispatch:
    __slots__ = ("actions", "handlers", "tx")

    def __init__(self, tx: Any, actions: dict[int, Sequence[Do]]) -> None:
        self.tx, self.handlers, self.actions = tx, tx.dispatch_table, actions

    def __getitem__(self, opcode: int) -> Any:
        handler = self.handlers[opcode]
        actions = self.actions.get(self.tx.instruction_pointer - 1)
        if actions is None:
            return handler
        return lambda tx, instruction: _act(actions, handler, tx, instruction)


def _act(actions: Sequence[Do], handler: Any, tx: Any, instruction: Any) -> None:
    """Trace an instruction of our own that does nothing, in front of the real one."""
    from torch._dynamo.bytecode_transformation import create_instruction

    pointer = tx.instruction_pointer
    nothing = create_instruction("NOP")
    nothing.positions = instruction.positions
    tx.instruction_pointer = pointer - 1  # after a break the program goes on with the real instruction
    for action in actions:
        _breakable(action)(tx, nothing)
        if tx.output.should_exit:
            return
    tx.instruction_pointer = pointer
    handler(tx, instruction)


def _breakable(action: Do) -> Any:
    """Torch: `break_graph_if_unsupported(push=, msg_prefix=)`, what makes an instruction one at which a graph may break."""
    from torch._dynamo.symbolic_convert import break_graph_if_unsupported

    def trace(tx: Any, instruction: Any) -> None:
        action(tx)

    return break_graph_if_unsupported(push=False, msg_prefix="Encountered graph break at a dynx probe")(trace)
