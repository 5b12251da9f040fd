"""Every exception that dynx raises.

DynxError
├── BadCodec            a codec of dynx.saved does not restore the tensor that it stored
├── BadProfile          a file is not a profile of dynamic sizes
├── BadRunFile          a file is not a dynx run file
├── CaptureError        with or_error=True: a graph cannot be captured as a CUDA graph
│   └── CaptureFailed   CUDA rejected an operation during a capture
├── CompiledDiffers     a compiled function behaves differently from eager code (also an AssertionError)
├── ComptimeFailed      a comptime callback or probe raised while Dynamo traced
│   ├── CheckFailed     a condition of ctx.check or ctx.assume is false
│   ├── NoSuchLocal     the traced frame has no such local variable (also a KeyError)
│   └── NotConstant     a value is not a compile-time constant (also a NotImplementedError)
├── NotIsolated         eager and compiled code used the same objects in a check (also an AssertionError)
├── ProbeFailed         a probe cannot be placed at a line or function
├── ReplayDiffers       a replay of a CUDA graph differs from an uncaptured run (also an AssertionError)
├── StaleEntry          a cache entry is no longer in torch's cache
├── UnsupportedTorch    the installed torch lacks a private name that a feature needs
├── UsageError          an invalid argument or command line (exit code 2)
└── UnknownRule         no advice rule has this id
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadCodec",
    "BadProfile",
    "BadRunFile",
    "CaptureError",
    "CaptureFailed",
    "CheckFailed",
    "CompiledDiffers",
    "ComptimeFailed",
    "DynxError",
    "DynxWarning",
    "NoSuchLocal",
    "NotConstant",
    "NotIsolated",
    "ProbeFailed",
    "ReplayDiffers",
    "StaleEntry",
    "UnknownRule",
    "UnsupportedTorch",
    "UsageError",
]


class DynxError(Exception):
    """Base class of all errors of dynx.

    The first line of the message says what happened, where and why; an indented second line says what to do next.
    """


class BadCodec(DynxError):
    """Raised when a codec of `dynx.saved` cannot store a tensor, or restores it with another shape, dtype or device.

    Raised at compile time, or by backward in eager code; no gradient is computed from a wrongly restored tensor.
    """


class BadProfile(DynxError):
    """Raised when a profile of dynamic sizes (PGO) is loaded from a file that is damaged, too large, or not a profile.

    No part of the file is used or executed.
    """


class BadRunFile(DynxError):
    """Raised when a run is loaded from a file that is empty or has no header of a dynx run.

    A run file that is damaged or truncated after its header is loaded as far as possible, with a `DynxWarning`.
    """


class CaptureError(DynxError):
    """Raised by `dynx.cudagraphs` with `or_error=True` instead of running a graph without CUDA graph capture.

    Also raised with `on_limit="error"` when a graph needs more than `max_recordings` captured CUDA graphs.
    """


class CaptureFailed(CaptureError):
    """Raised when CUDA, or the CPU emulator of CUDA graphs, rejects an operation during a capture.

    Typical causes: a synchronization with the device, a read of a tensor's value, a stream that was not joined, or a tensor on
    the CPU that a replay could not update.

    Attributes:
        location: The line of the operation (`dynx.records.Location`), where it is known.
    """

    location: Any = None


class CompiledDiffers(DynxError, AssertionError):
    """Raised by `CheckReport.assert_ok`: a compiled function behaves differently from eager code, or nothing was compiled."""


class NotIsolated(DynxError, AssertionError):
    """Raised by `CheckReport.assert_ok`: eager and compiled code used the same objects, so the comparison proves nothing."""


class ComptimeFailed(DynxError):
    """Raised from the compiled call when a comptime callback or a probe raises an exception or misuses its argument `ctx`.

    For example: `ctx` is used after the callback has returned, a frame does not exist, or a condition is not a comparison of
    symbolic numbers.
    """


class CheckFailed(ComptimeFailed):
    """Raised at trace time when Dynamo already knows that the condition of `ctx.check` or `ctx.assume` is false."""


class NoSuchLocal(ComptimeFailed, KeyError):
    """Raised by `ctx.local` when the traced frame has no local variable of this name.

    The variable may exist in the source: Dynamo drops a local variable that the rest of the frame does not read.
    """

    __str__ = Exception.__str__  # KeyError shows its text as a repr


class NotConstant(ComptimeFailed, NotImplementedError):
    """Raised at trace time when a comptime callback asks for the Python value of a variable that has none, such as a tensor."""


class ProbeFailed(DynxError):
    """Raised when a probe, a callback that runs when Dynamo traces a line or function, cannot be placed there.

    Typical causes: the line has no code, the file or function does not exist, or Dynamo never traces the function (it is
    disabled, skipped or written in C).
    """


class UnsupportedTorch(DynxError):
    """Raised when a feature needs a private name of torch that the installed version lacks; `dynx doctor` lists these names."""


class UsageError(DynxError):
    """Raised when an argument of a function or of the command line is invalid; the command line then exits with code 2."""


class ReplayDiffers(DynxError, AssertionError):
    """Raised with `cudagraphs.Config(verify=n)` when a replay differs from an uncaptured run of the same call.

    Memory and RNG state are those after the uncaptured run; if that run raised (see `__cause__`), those after the replay.
    """


class StaleEntry(DynxError):
    """Raised when a `dynx.records.Entry` is used after its cache entry was evicted or `torch._dynamo.reset()` was called."""


class UnknownRule(DynxError):
    """Raised when an advice rule is requested by an id that does not exist, such as DX999."""


class DynxWarning(UserWarning):
    """Category of all warnings that dynx issues, for example when it cannot observe a compilation or write a run file."""
