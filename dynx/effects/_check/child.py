"""Run a part of `dynx.check` in a forked child process, and return only the result."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import IO, Any, TypeVar

import torch

from dynx._torch.compilation.anew import without_worker_processes
from dynx.errors import UsageError

T = TypeVar("T")


class ChildDied(Exception):
    """The child process ended without a result; the message of the exception says how, such as "signal SIGSEGV"."""


def refuse_if_impossible() -> None:
    """Raise UsageError if the system has no fork, or if CUDA is available, which a forked process cannot use."""
    if not hasattr(os, "fork"):
        raise UsageError(f'isolate="fork" is not possible on {sys.platform}, which has no fork\n  pass isolate="copy"')
    if torch.cuda.is_available():  # Dynamo reads the properties of the GPU, even to compile CPU code
        raise UsageError(
            'isolate="fork" is not possible here: CUDA is available, and a forked process cannot use it\n'
            '  pass isolate="copy", or hide the GPUs: CUDA_VISIBLE_DEVICES= python ...'
        )


def in_child(work: Callable[[], T]) -> T:
    """Run a function in a forked child process, in which torch uses one thread, and return its result.

    With several threads, a child of a process that has used OpenMP hangs at its first parallel operator.

    Raises:
        ChildDied: The child ended before the function returned.
        UsageError: The result cannot be pickled.
        Exception: An exception of the function itself.
    """
    with tempfile.TemporaryFile() as file:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about a fork with several threads
            pid = os.fork()
        if pid == 0:
            _run(work, file)
        try:
            _, status = os.waitpid(pid, 0)
        except BaseException:  # such as a KeyboardInterrupt: nothing else waits for the child
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            raise ChildDied(f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
        file.seek(0)
        result, error = torch.load(file, weights_only=False)
    if error is not None:
        raise error
    return result


def packed(value: Any) -> bytes:
    """Serialize a value to bytes, with the current elements of its tensors."""
    buffer = BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpacked(data: bytes) -> Any:
    """Return the value that `packed` serialized."""
    return torch.load(BytesIO(data), weights_only=False)


def _run(work: Callable[[], Any], file: IO[bytes]) -> None:
    """Call a function, write its result or exception to a file, and end the process without running `atexit` handlers."""
    code = 1
    try:
        torch.set_num_threads(1)
        result: tuple[Any, Exception | None]
        try:
            with without_worker_processes():
                result = work(), None
        except Exception as error:  # noqa: BLE001 - the parent raises it
            result = None, _portable(error)
        try:
            data = packed(result)
        except Exception as error:  # noqa: BLE001 - an object that cannot be pickled may raise anything
            text = f"what the function returns or changes cannot be passed between processes: {error}"
            data = packed((None, UsageError(f'{text}\n  pass isolate="copy"')))
        file.write(data)
        file.flush()
        code = 0
    finally:
        os._exit(code)


def _portable(error: Exception) -> Exception:
    """Return the exception itself if it can be pickled, else a RuntimeError with its class and message as text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
