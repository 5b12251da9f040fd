"""Store tensors as 8-bit integers."""

from __future__ import annotations

import torch

from dynx.saved._codec import Codec
from dynx.saved.codecs._scales import Alphabet, Per, scaled_codec


def int8(*, per: Per = "row", block: int = 128) -> Codec:
    """Store floating-point tensors as 8-bit integers and float32 scales; unlike `fp8`, the stored values are evenly spaced.

    The error of an element is at most 1/254 of the largest finite element that shares its scale, or 1/252 if infinities or NaN
    share it; elements below this bound become 0. A bfloat16 result is rounded once more, by up to 2^-8: in total, 1/127.

    Args:
        per: The elements that share a scale: the `"tensor"`, each `"row"` along the last dim, or each `"block"` of a row.
        block: Elements per block. Rows are padded to a multiple of it; tensors that need more than 1/8 padding are not packed.

    Raises:
        UsageError: `per` is unknown, or `block` is not a positive int.

    Example:
        >>> import torch
        >>> from dynx.saved import codecs
        >>> codec = codecs.int8()
        >>> codec.unpack(codec.pack(torch.tensor([[127.0, 1.2, -0.3]])))
        tensor([[127.,   1.,   0.]])
    """
    return scaled_codec("int8", "saved.codecs.int8(", Alphabet(127, 126, -128), _encode, per=per, block=block)


def _encode(codes: torch.Tensor) -> torch.Tensor:
    return codes.round().to(torch.int8)
