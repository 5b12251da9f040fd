"""Where graphs are captured: on a CUDA device, or in an emulator of one."""

from dynx.cudagraphs.runtime._interface import Captured, Runtime, runtime_of

__all__ = ["Captured", "Runtime", "runtime_of"]
