"""Name the operator that makes a capture fail, and the line of the user's code that calls it.

CUDA reports some errors only at the end of a capture. Torch raises if a seed is set in a capture, unless the generator has the
same seed already; see `SeedlessGraph`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from traceback import walk_tb
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from dynx._reading.user_location import call_site, user_location
from dynx._torch.tracing.stack import RawFrame
from dynx.cudagraphs._operator_mode import OperatorMode
from dynx.cudagraphs._runtime.rng_errors import SEED_WAS_SET
from dynx.errors import CaptureFailed
from dynx.records import Location


class Failure(NamedTuple):
    """The text of a CaptureFailed, and the user's line; `text_if_caught` is used if the captured function caught the error."""

    text: str
    location: Location | None
    text_if_caught: str = ""

    def error(self) -> CaptureFailed:
        error = CaptureFailed(self.text)
        error.location = self.location
        return error


class NameFailures(OperatorMode):
    """A dispatch mode that notes the first operator that fails in a capture, and the user's line.

    Enter it after other modes, so that it sees their errors. On exit, it raises CaptureFailed if the function caught the error:
    in eager code, the operator might not fail. `is_invalidated` returns whether an operator has invalidated the capture without
    an error. In the emulator, `is_invalidated` is None, and only a caught CaptureFailed is raised: an operator that raises any
    other error also fails in eager code.
    """

    def __init__(self, is_invalidated: Callable[[], bool] | None = None) -> None:
        super().__init__()
        self._is_invalidated = is_invalidated
        self.first: Failure | None = None  # without the exception, whose traceback would keep tensors of the capture alive

    def __torch_dispatch__(self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        try:
            out = operator(*args, **(kwargs or {}))
        except CaptureFailed as error:
            error.location = error.location or call_site()
            self.first = self.first or Failure(str(error), error.location)
            raise
        except RuntimeError as error:
            text = f"{operator} cannot be captured: {first_line(error)}"
            caught = f"{operator} raised in a capture, and the function caught it: {first_line(error)}"
            self.first = self.first or Failure(text, call_site(), caught)
            raise
        if self._is_invalidated is not None and self._is_invalidated():
            raise self._refusal(f"{operator} cannot be captured: after it, CUDA reports that the capture is invalid")
        if any(isinstance(leaf, torch.Tensor) and leaf.layout in _SPARSE for leaf in tree_leaves(out)):
            raise self._refusal(
                f"{operator} makes a sparse tensor, and a replay could not change how many elements it has\n"
                "  use dense tensors, for example nn.Embedding(sparse=False)"
            )
        return out

    def _refusal(self, text: str) -> CaptureFailed:
        self.first = self.first or Failure(text, call_site())
        return self.first.error()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self.first is None or error[0] is not None:
            return
        if not self.first.text_if_caught:
            raise self.first.error()
        if self._is_invalidated is not None:
            raise self.first._replace(text=self.first.text_if_caught).error()


_SPARSE = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc


def failure_of(error: BaseException, what: str) -> CaptureFailed:
    """Return a CaptureFailed ("`what` failed") for an error outside of operators, such as one of `torch.cuda.synchronize`."""
    while error.__context__ is not None:  # the first exception of the chain caused the error at the end of the capture
        error = error.__context__
    calls = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    sets_seed = any(code in _seeding() for code, _ in calls)
    location = user_location([RawFrame(code.co_filename, line, code.co_qualname) for code, line in calls])
    return Failure(SEED_WAS_SET if sets_seed else f"{what} failed: {first_line(error)}", location).error()


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _seeding() -> set[CodeType]:
    """Return the code objects of torch's functions that set seeds, unwrapped: Dynamo's wrappers all share one code object."""
    on_cuda = torch.cuda.manual_seed, torch.cuda.manual_seed_all, torch.cuda.seed, torch.cuda.seed_all, torch.cuda.set_rng_state
    return {inspect.unwrap(function).__code__ for function in (torch.manual_seed, torch.seed, *on_cuda)}
