"""Read and write the user's source files without changing their encoding, byte order mark or line endings."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path


def read(file: str) -> str:
    """Return the text of a source file, with its line endings and without a byte order mark.

    Raises OSError, or UnicodeDecodeError or SyntaxError for bytes that are not source code.
    """
    content = Path(file).read_bytes()
    return content.decode(encoding_of(content))


def write(file: str, text: str) -> None:
    """Write a source file in its present encoding; raise OSError, or UnicodeEncodeError if the text cannot be encoded."""
    path = Path(file)
    content = text.encode(encoding_of(path.read_bytes()))
    path.write_bytes(content)


def encoding_of(content: bytes) -> str:
    """Return the encoding of source code, as Python detects it; "utf-8-sig" if it begins with a byte order mark."""
    return tokenize.detect_encoding(io.BytesIO(content).readline)[0]
