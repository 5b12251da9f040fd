"""`Program`: the function of a check, its calls, and how the calls are made and compared.

A check has an eager and a compiled side. Each side has a world: a copy of the function's arguments and variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from dynx._torch.autograd.capture_cache import captured, disabled
from dynx._torch.compilation.anew import compile_apart
from dynx.effects._check.facts import Tolerance
from dynx.effects._check.run import Side
from dynx.effects._world.world import Call, World


class Program(NamedTuple):
    """What a check runs: a function that is not compiled, the arguments of its calls, and the options of the check."""

    fn: Any
    calls: Sequence[Call]
    state: Mapping[str, Any]
    tolerance: Tolerance
    forks: bool = False  # whether each side runs in a process of its own
    fullgraph: bool = False  # whether graph breaks raise
    change: Callable[[], Any] | None = None  # called before the call with the number `changed_at`
    changed_at: int | None = None
    aligns_random_numbers: bool = True
    captures_backward: bool = False  # whether compiled autograd captures the backward passes of the compiled side

    def eager(self, random: dict[str, Any], *, in_double: bool = False) -> Side:
        """Return a `Side` to call the function eagerly, on new copies of arguments and variables, from RNG states `random`."""
        world = self._world(in_double=in_double)
        return Side(world, world.fn, random, self.changed_at, disabled if self.captures_backward else nullcontext)

    def compiled(self, backend: Any, random: dict[str, Any], stack: ExitStack) -> Side:
        """Return a `Side` that calls the compiled function, on new copies of arguments and variables, from RNG states `random`.

        Until `stack` closes, the user's functions have copies of their code objects: the originals get no cache entries.
        """
        world = self._world()
        stack.enter_context(_own_code(world.functions))
        compiled = compile_apart(world.fn, backend, fullgraph=self.fullgraph, in_place=True)
        around = captured(lambda graph: compile_apart(graph, backend), stack) if self.captures_backward else nullcontext
        return Side(world, compiled, random, self.changed_at, around)

    def roots(self) -> Iterator[tuple[str, Any]]:
        """Yield path and original of each object that is copied for the calls: function, arguments, `state` and `change`."""
        yield getattr(self.fn, "__qualname__", "self").rpartition("<locals>.")[2], self.fn
        for call in self.calls:
            yield from ((f"args[{index}]", value) for index, value in enumerate(call.args))
            yield from ((f"kwargs.{name}", value) for name, value in call.kwargs.items())
        yield from self.state.items()
        yield "change", self.change

    def _world(self, *, in_double: bool = False) -> World:
        return World(self.fn, self.calls, self.state, self.change, in_double=in_double)


@contextmanager
def _own_code(functions: Iterable[FunctionType]) -> Iterator[None]:
    """In a `with` block, replace functions' code objects by copies, so that torch adds cache entries only to the copies."""
    originals = {function: function.__code__ for function in functions}
    copies: dict[CodeType, CodeType] = {}
    try:
        for function, code in originals.items():
            function.__code__ = _copied(code, copies)
        yield
    finally:
        for function, code in originals.items():
            function.__code__ = code


def _copied(code: CodeType, copies: dict[CodeType, CodeType]) -> CodeType:
    """Return a copy of a code object and of the code objects inside it; `copies` has those that were copied before."""
    if code not in copies:
        constants = (_copied(each, copies) if isinstance(each, CodeType) else each for each in code.co_consts)
        copies[code] = code.replace(co_consts=tuple(constants))
    return copies[code]
