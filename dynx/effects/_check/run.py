"""Call a function, eagerly or compiled, in its world (copies of its arguments and variables), and describe each outcome."""

from __future__ import annotations

import contextlib
import contextvars
import io
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from dynx._reading.user_location import user_location
from dynx._torch.compilation.in_use import without_modes
from dynx._torch.tracing.stack import RawFrame
from dynx.effects._check.facts import Description, Facts
from dynx.effects._world.world import World
from dynx.errors import UsageError
from dynx.records.location import Location

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
# the functions that read and set each mode of torch that a program may change while it runs
_MODES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "grad enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
}
for _on in ("cpu", "cuda"):
    _MODES[f"autocast on {_on}"] = partial(torch.is_autocast_enabled, _on), partial(torch.set_autocast_enabled, _on)
    _MODES[f"autocast dtype on {_on}"] = partial(torch.get_autocast_dtype, _on), partial(torch.set_autocast_dtype, _on)


class Raised(NamedTuple):
    """An exception: the names of its class and base classes, its message, and the user's line that raised it."""

    classes: tuple[str, ...]
    message: str
    location: Location | None


def _raised(error: BaseException) -> Raised:
    classes = tuple(f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    stack = [
        RawFrame(frame.f_code.co_filename, line, frame.f_code.co_qualname)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return Raised(classes, str(error), user_location(stack))


class Outcome(NamedTuple):
    """What one call returned and changed, its exception, output, RNG states and gradients; can be pickled."""

    facts: Facts
    error: Raised | None
    output: str  # on stdout
    random: dict[str, Any]  # states of the random number generators
    gradients: dict[str, torch.Tensor] | str  # of leaf tensors, by path; an error message if there are none

    def errors(self) -> Iterator[str]:
        """Yield the messages of errors, if any: the exception that the call raised, and the error of computing gradients."""
        if self.error is not None:
            yield self.error.message
        if isinstance(self.gradients, str):
            yield self.gradients


class Side:
    """One side of a check: calls the eager or the compiled function on the copies in a `World`, and keeps the RNG states.

    `call` is the copy of the function, compiled or not; `random` has the states of the random number generators before the
    first call; `changed_at` is the index of the call before which the user's function `change` is called, None if none is.
    `around` is entered for each call and its backward pass.
    """

    def __init__(
        self,
        world: World,
        call: Callable[..., Any],
        random: dict[str, Any],
        changed_at: int | None = None,
        around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.world, self.random, self._call, self._changed_at, self._around = world, random, call, changed_at, around
        self._context = contextvars.copy_context()
        world.enter_context(self._context)

    def run(self, index: int) -> Outcome:
        """Make the call with this index and return its outcome; before call `changed_at`, call the user's function `change`."""
        if index == self._changed_at:
            self._change()
        call = self.world.calls[index]
        error: Raised | None = None
        result = None
        output = io.StringIO()
        with self.world.entered(), self._settings_restored():
            try:
                with contextlib.redirect_stdout(output), self._around():
                    result = self._context.run(self._call, *call.args, **call.kwargs)
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - exceptions are compared too
                error = _raised(raised)
            with without_modes():
                roots = {**self.world.roots(call, self._context), "result": result, "modes of torch": _modes()}
                description = Description(roots, self.world.functions)
            self.random = random_states()
            with self._around():
                gradients = _gradients(description) if error is None else {}
        return Outcome(description.facts, error, _ADDRESS.sub("0x…", output.getvalue()), self.random, gradients)

    def _change(self) -> None:
        """Call the function that the user passed as `change=`; raise UsageError if it raises."""
        with self.world.entered(), self._settings_restored():
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    self._context.run(self.world.change)
            except Exception as error:
                where = _raised(error).location
                at = f"\n  at {where}" if where is not None else ""
                raise UsageError(
                    f"change raised {type(error).__name__}: {error}{at}\n  pass a function that does not raise"
                ) from error
            self.random = random_states()

    @contextlib.contextmanager
    def _settings_restored(self) -> Iterator[None]:
        """Run a `with` block from the RNG states that the previous call left; then restore torch's modes, such as grad mode."""
        with without_modes():
            before = _modes()
            set_random_states(self.random)
        try:
            yield
        finally:
            with without_modes():
                _restore(before)


def _gradients(description: Description) -> dict[str, torch.Tensor] | str:
    """Return the gradients of the leaf tensors, by path, without setting `.grad`; the error message if autograd fails."""
    results = list(description.computed.values())
    if not results or not description.leaves:
        return {}
    weights = [_weights(result) for result in results]
    # the backward pass of activation checkpointing runs parts of the function again, which may change buffers
    before = [(tensor, tensor.clone()) for tensor in description.values.values() if not tensor.is_meta]
    try:
        values = torch.autograd.grad(results, list(description.leaves.values()), weights, allow_unused=True, retain_graph=True)
    except RuntimeError as error:  # such as an autograd graph that the function has freed
        return str(error)
    finally:
        for tensor, content in before:
            if not torch.equal(tensor, content):  # batch_norm does not increase the version
                tensor.copy_(content)
    return {path: value for path, value in zip(description.leaves, values, strict=True) if value is not None}


def _weights(result: torch.Tensor) -> torch.Tensor:
    """Return `grad_outputs` that differ for each element of a result: if all were 1, the gradient of a softmax would be 0."""
    steps = torch.arange(result.numel(), device=result.device, dtype=torch.float64).reshape(result.shape)
    return (0.5 + (steps * 0.618034) % 1).to(result.dtype)


def random_states() -> dict[str, Any]:
    """Return the states of the random number generators of torch, Python and NumPy."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "random": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["torch.cuda"] = torch.cuda.get_rng_state_all()
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy.random"] = numpy.random.get_state()
    return states


def set_random_states(states: dict[str, Any]) -> None:
    """Restore the states that `random_states` returned."""
    torch.set_rng_state(states["torch"])
    random.setstate(states["random"])
    if "torch.cuda" in states:
        torch.cuda.set_rng_state_all(states["torch.cuda"])
    if "numpy.random" in states:
        sys.modules["numpy"].random.set_state(states["numpy.random"])


@contextlib.contextmanager
def random_restored() -> Iterator[None]:
    """Restore the RNG states of torch, Python and NumPy at the end of a `with` block."""
    states = random_states()
    try:
        yield
    finally:
        set_random_states(states)


def _modes() -> dict[str, Any]:
    """Return torch's global modes by name, such as grad mode. They are compared, and all except inference mode restored."""
    return {"inference": torch.is_inference_mode_enabled(), **{name: get() for name, (get, _) in _MODES.items()}}


def _restore(modes: dict[str, Any]) -> None:
    for name, (get, set_to) in _MODES.items():
        if get() != modes[name]:
            set_to(modes[name])
