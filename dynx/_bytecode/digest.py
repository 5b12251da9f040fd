"""Hash code objects so that the same source has the same hash in every process."""

from __future__ import annotations

import hashlib
from types import CodeType

_SIZE = 8  # bytes


def code_digest(code: CodeType) -> bytes:
    """Return a hash of a function's code: its instructions, names and constants, including those of nested functions.

    The hash depends on the version of Python, as the instructions do, but not on the file, line numbers or PYTHONHASHSEED.
    `hash(code)`, which torch uses, also depends on PYTHONHASHSEED, and in some versions of Python on line numbers.
    """
    digest = hashlib.blake2b(digest_size=_SIZE)
    _add(digest, code)
    return digest.digest()


def _add(digest: hashlib.blake2b, value: object) -> None:
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars
        _add(digest, (value.co_name, value.co_flags, value.co_argcount, value.co_kwonlyargcount, value.co_code, *names))
        _add(digest, value.co_consts)
    elif isinstance(value, (tuple, frozenset)):
        parts = [_of(item) for item in value]
        digest.update(f"{type(value).__name__} {len(parts)}:".encode())
        digest.update(b"".join(sorted(parts) if isinstance(value, frozenset) else parts))
    else:  # all other constants of code: numbers, strings, bytes, None, True, Ellipsis
        text = f"{type(value).__name__} {value!r}".encode(errors="surrogatepass")
        digest.update(b"%d:" % len(text) + text)


def _of(value: object) -> bytes:
    digest = hashlib.blake2b(digest_size=_SIZE)
    _add(digest, value)
    return digest.digest()
