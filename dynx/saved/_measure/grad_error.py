"""`grad_error`: the error that hooks cause in the gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from dynx.records.saved_report import GradError, ParameterError
from dynx.saved._hooks import SavedHooks
from dynx.saved._measure.trial import Program, Trial


class Difference(NamedTuple):
    """Cosine similarity and relative error of two vectors."""

    cosine: float
    relative: float


def grad_error(fn: Any, /, *args: Any, hooks: SavedHooks, backend: Any = None, **kwargs: Any) -> GradError:
    """Compute gradients with and without hooks, with the same random numbers, and return their difference.

    The same backend compiles both runs, so only the codecs cause the difference. Buffers and RNG states are restored; gradients
    are not added to `.grad`.

    Args:
        fn: A function that returns a loss, or a module; compiled or not.
        *args: Arguments of the call.
        hooks: The hooks to measure, from `saved.hooks(...)`.
        backend: A backend of torch.compile. Default: the backend of `fn`, or inductor if `fn` is not compiled.
        **kwargs: Keyword arguments of the call.

    Returns:
        A `GradError` with the cosine similarity and relative error of all gradients together, and of each parameter.

    Raises:
        UsageError: `fn` is not callable, or returns nothing that requires a gradient.
        BadCodec: A codec does not restore the shape, dtype or device.

    Example:
        >>> import torch
        >>> from dynx import saved
        >>> model, x = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()), torch.randn(32, 64)
        >>> error = saved.grad_error(model, x, hooks=saved.hooks(saved.rule(saved.codecs.bf16())), backend="aot_eager")
        >>> error.cosine > 0.9999 and error.relative < 0.01
        True
    """
    program = Program(fn, args, kwargs, backend)
    return compared(program.run(hooks), program.run(None), tuple(map(str, hooks.rules)))


def compared(trial: Trial, without: Trial, rules: tuple[str, ...] = ()) -> GradError:
    """Compare the gradients of a run with hooks (`trial`) and a run `without` hooks; `rules` are copied to the result."""
    names = [name for name in without.gradients if name in trial.gradients]
    parameters = []
    for name in names:
        found = difference({name: trial.gradients[name]}, {name: without.gradients[name]})
        parameters.append(ParameterError(name, *found, numel=without.gradients[name].numel()))
    total = difference(trial.gradients, without.gradients)
    activations = [tensor for graph in trial.graphs for tensor in graph.activations]
    activations += [tensor for tensor in trial.eager if tensor.is_activation]
    return GradError(
        *total,
        tuple(sorted(parameters, key=lambda one: -one.relative)),
        sum(tensor.bytes for tensor in activations),
        sum(tensor.saved_bytes for tensor in activations),
        rules,
    )


def difference(actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> Difference:
    """Return the cosine similarity and relative error of all gradients as one vector, computed in float64."""
    dot = squares = expected_squares = apart = 0.0
    for name, reference in expected.items():
        if name not in actual:
            continue
        wide = torch.complex128 if reference.is_complex() else torch.float64
        a, b = actual[name].detach().to(wide), reference.detach().to(wide)
        dot += float((a * b.conj()).real.sum())
        squares, expected_squares = squares + float(a.abs().square().sum()), expected_squares + float(b.abs().square().sum())
        apart += float((a - b).abs().square().sum())
    if expected_squares == 0:
        return Difference(1.0 if squares == 0 else 0.0, 0.0 if apart == 0 else float("inf"))
    norms = (squares * expected_squares) ** 0.5
    return Difference(dot / norms if norms else 0.0, (apart / expected_squares) ** 0.5)
