"""Run actions before chosen instructions while Dynamo traces a function; an action may break the graph at its instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any

from dynx._bytecode.statements import Step, step_at
from dynx._bytecode.trail import Code
from dynx._torch.capabilities import require

Action = Callable[[Any], None]  # takes the translator


def steps_of(code: CodeType) -> list[Step]:
    """Return the instructions that Dynamo traces for a code object (`cleaned_instructions`), at the same indices."""
    from torch._dynamo.bytecode_transformation import cleaned_instructions

    return [
        step_at(instruction.opname, instruction.argval, instruction.positions) for instruction in cleaned_instructions(code)
    ]


def original_code(code: CodeType) -> CodeType:
    """Return the user's code object: for the code of a resume function, the code of the function that it resumes."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    if code not in ContinueExecutionCache.generated_code_metadata:
        return code
    return ContinueExecutionCache.generated_code_metadata[code].code


def traced_code(tx: Any) -> Code:
    """Return the code object that a symbolic frame traces, as a `Code` record of `dynx._bytecode.trail`."""
    return Code(tx.f_code, len(tx.instructions), original_code(tx.f_code), resumes_at(tx))


def shifted(code: Code, indices: Iterable[int]) -> tuple[int, ...]:
    """Translate instruction indices of the original code to indices of `code`, which may be the code of a resume function.

    A resume function is a prologue and the whole original function. The prologue jumps to the instruction where execution
    continues. Earlier instructions are never reached, so their indices are omitted. Torch aligns both codes from their ends
    (`generate_based_on_original_code_object`).
    """
    if code.resumes_at is None:
        return tuple(indices)
    shift = code.length - len(steps_of(code.original))
    return tuple(index + shift for index in indices if index + shift >= code.resumes_at)


def resumes_at(tx: Any) -> int | None:
    """Return the index of the instruction at which a resume function continues; None for any other frame."""
    if not tx.f_code.co_name.startswith("torch_dynamo_resume_in_"):
        return None
    prologue = [index for index, inst in enumerate(tx.instructions) if inst.argval == "__is_tracing_resume_prologue"]
    behind = tx.instructions[prologue[-1] + 1 :] if prologue else ()
    return next((int(tx.indexof[inst.target]) for inst in behind if inst.opname.startswith("JUMP")), None)


def at_instructions(tx: Any, actions: Mapping[int, Sequence[Action]]) -> None:
    """Run actions right before the instructions with these indices, whenever Dynamo traces them in this symbolic frame.

    Replaces `dispatch_table` on this translator, not on its class. Torch looks up the handler of every instruction inside the
    `try` that turns exceptions into graph breaks. Therefore an action may break the graph, as an instruction may.
    """
    require("breakable", "no_operation")
    if isinstance(tx.dispatch_table, _Dispatch):
        tx.dispatch_table.actions.update(actions)
    else:
        tx.dispatch_table = _Dispatch(tx, dict(actions))


class _Dispatch:
    """The opcode dispatch table of one InstructionTranslator, with actions that run before some instructions."""

    __slots__ = ("actions", "handlers", "tx")

    def __init__(self, tx: Any, actions: dict[int, Sequence[Action]]) -> None:
        self.tx, self.handlers, self.actions = tx, tx.dispatch_table, actions

    def __getitem__(self, opcode: int) -> Any:
        handler = self.handlers[opcode]
        actions = self.actions.get(self.tx.instruction_pointer - 1)
        if actions is None:
            return handler
        return lambda tx, instruction: _run_actions(actions, handler, tx, instruction)


def _run_actions(actions: Sequence[Action], handler: Any, tx: Any, instruction: Any) -> None:
    """Run each action in place of a NOP instruction, so that it may break the graph, then trace the real instruction."""
    from torch._dynamo.bytecode_transformation import create_instruction

    pointer = tx.instruction_pointer
    nop = create_instruction("NOP")
    nop.positions = instruction.positions
    tx.instruction_pointer = pointer - 1  # after a graph break the program continues with the real instruction
    for action in actions:
        _breakable(action)(tx, nop)
        if tx.output.should_exit:
            return
    tx.instruction_pointer = pointer
    handler(tx, instruction)


def _breakable(action: Action) -> Any:
    """Turn an action into an instruction handler that may break the graph. Torch: `break_graph_if_unsupported`."""
    from torch._dynamo.symbolic_convert import break_graph_if_unsupported

    def trace(tx: Any, instruction: Any) -> None:
        action(tx)

    return break_graph_if_unsupported(push=False, msg_prefix="Encountered graph break at a dynx probe")(trace)
