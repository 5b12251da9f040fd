"""Store tensors in 8-bit floating point."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from dynx.errors import UsageError
from dynx.saved._codec import Codec
from dynx.saved.codecs._scales import Alphabet, Per, scaled_codec

# the infinity of e5m2 is not used: on some GPUs, casts replace it by the largest number
_FORMATS = {
    "e4m3": (torch.float8_e4m3fn, Alphabet(448, 416, None)),
    "e5m2": (torch.float8_e5m2, Alphabet(57344, 49152, None)),
}


def fp8(format: Literal["e4m3", "e5m2"] = "e4m3", *, per: Per = "row", block: int = 128) -> Codec:
    """Store floating-point tensors in 8 bits, with float32 scales (float64 for float64): a quarter of the bytes of float32.

    Elements become 0 if they are below about 2^-19 (e4m3) or 2^-33 (e5m2) of the largest element that shares their scale.

    Args:
        format: `"e4m3"` with 3 bits of mantissa, or `"e5m2"` with 2 and a larger range.
        per: The elements that share a scale: the `"tensor"`, each `"row"` along the last dim, or each `"block"` of a row.
        block: Elements per block. Rows are padded to a multiple of it; tensors that need more than 1/8 padding are not packed.

    Raises:
        UsageError: `format` or `per` is unknown, or `block` is not a positive int.

    Example:
        >>> import torch
        >>> from dynx.saved import codecs
        >>> codec = codecs.fp8()
        >>> codec.unpack(codec.pack(torch.tensor([[1.0, 0.51, 0.0]])))
        tensor([[1.0000, 0.5000, 0.0000]])
    """
    if format not in _FORMATS:
        raise UsageError(f"format={format!r} is not known\n  pass 'e4m3' or 'e5m2'")
    stored_as, alphabet = _FORMATS[format]
    name, code = "fp8" if format == "e4m3" else "fp8 e5m2", f'saved.codecs.fp8("{format}", '
    return scaled_codec(name, code, alphabet, partial(torch.Tensor.to, dtype=stored_as), per=per, block=block)
