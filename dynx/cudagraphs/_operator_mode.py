"""The base class of dispatch modes that observe operators of eager code."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorMode(TorchDispatchMode):
    """A dispatch mode that is called for each operator of eager code, higher-order operators included.

    Compiled functions run as they do without the mode.
    """

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True
