"""Distinguish rounding errors from wrong results, by comparing with eager code in double precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from dynx.effects._check.compare import Difference
from dynx.effects._check.draws import RecordDraws, ReplayDraws
from dynx.effects._check.facts import Tolerance
from dynx.effects._check.program import Program
from dynx.effects._check.run import Outcome

_MARGIN = 3.0  # the compiled error may be this many times the eager error
_ROUNDINGS = {torch.float32: 16.0, torch.float64: 16.0}  # allowed roundings of the largest element; 1 for 16 bits
_CLOSER = 0.5  # of the eager error: such a small compiled error is always accepted
_CANCELLED = 4.0  # times as many roundings are allowed where terms cancel
_USABLE = {torch.float32: 1e-3, torch.float64: 1e-9, torch.bfloat16: 0.1, torch.float16: 0.05}  # eager error


def beyond_rounding(found: list[Difference], program: Program, random: dict[str, Any]) -> list[Difference]:
    """Return the differences that rounding does not explain, judged by the rounding errors of eager code.

    If the user passed `rtol` or `atol`, return all. The program is called eagerly, in single and in double precision; `random`
    has the states of the random number generators before the first call.
    """
    numeric = {one.diff.call for one in found if _is_rounded(one)}
    if not numeric or program.tolerance != Tolerance():
        return found
    outcomes: dict[int, dict[str, torch.Tensor]] = {}
    calls = range(max(numeric) + 1)
    try:
        with torch.compiler.set_stance("force_eager"):
            with RecordDraws() as recorded:
                single = program.eager(random)
                for index in calls:
                    single.run(index)
            double = program.eager(random, in_double=True)
            with ExitStack() as stack, ReplayDraws(recorded.draws):
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(torch.float64)
                for index in calls:
                    outcome = double.run(index)
                    outcomes[index] = _tensors(outcome) if index in numeric else {}
    except Exception:  # noqa: BLE001 - the function may not accept double precision
        return found
    return [one for one in found if not (_is_rounded(one) and _is_close(one, outcomes[one.diff.call], recorded.low))]


def _is_rounded(difference: Difference) -> bool:
    eager, compiled = difference.eager, difference.compiled
    if eager is None or compiled is None or eager.is_meta:
        return False
    is_alike = (eager.dtype, eager.shape, eager.device) == (compiled.dtype, compiled.shape, compiled.device)
    return is_alike and (eager.is_floating_point() or eager.is_complex())


def _tensors(outcome: Outcome) -> dict[str, torch.Tensor]:
    tensors = {path: fact.value for path, fact in outcome.facts.items() if fact.kind == "tensor"}
    tensors |= {path: torch.tensor(fact.value) for path, fact in outcome.facts.items() if isinstance(fact.value, float)}
    if not isinstance(outcome.gradients, str):
        tensors |= {f"gradient of {path}": value for path, value in outcome.gradients.items()}
    return {path: tensor.clone() for path, tensor in tensors.items()}


def _is_close(difference: Difference, exact: Mapping[str, torch.Tensor], low: Collection[torch.dtype]) -> bool:
    """Return whether the compiled tensor is about as close to the exact result as the eager tensor is.

    `exact` has the results of eager code in double precision, by path; `low` the 16-bit dtypes that eager code used.
    """
    eager, compiled, wanted = difference.eager, difference.compiled, exact.get(difference.diff.path)
    if wanted is None or eager is None or compiled is None or wanted.shape != eager.shape or not wanted.numel():
        return False
    if not all(value.isfinite().all() for value in (eager, compiled, wanted)):
        return False
    error, error_of_eager = ((value.to(wanted.dtype) - wanted).abs().max().item() for value in (compiled, eager))
    if error <= _CLOSER * error_of_eager:
        return True
    rounding = _ROUNDINGS.get(eager.dtype, 1.0) * torch.finfo(eager.dtype).eps
    largest = wanted.abs().max().item()
    scale = _largest_gradient(exact) if difference.diff.kind == "gradient" else largest
    if largest <= rounding * scale:  # exactly 0, such as the gradient of a bias before a batch norm: terms cancel
        return max(error, error_of_eager) <= _CANCELLED * rounding * scale
    if error_of_eager > largest * max(_USABLE.get(dtype, 0.0) for dtype in (eager.dtype, *low)):
        return False  # eager code computes something else in double precision
    return error <= _MARGIN * error_of_eager + rounding * largest


def _largest_gradient(exact: Mapping[str, torch.Tensor]) -> float:
    gradients = [value for path, value in exact.items() if path.startswith("gradient of ") and value.numel()]
    return max((value.abs().max().item() for value in gradients), default=0.0)
