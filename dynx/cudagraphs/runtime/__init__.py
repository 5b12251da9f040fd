"""Where graphs are captured: on a CUDA device, or in an emulator of one."""

from dynx.cudagraphs.runtime._copies import CopiesNotFound
from dynx.cudagraphs.runtime._interface import Captured, Copy, Runtime, runtime_of

__all__ = ["Captured", "CopiesNotFound", "Copy", "Runtime", "runtime_of"]
