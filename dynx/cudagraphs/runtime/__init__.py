"""Where graphs are captured: on a CUDA device, or in an emulator of one."""

from dynx.cudagraphs.runtime._copies import CopiesNotFound, copy_of, extent
from dynx.cudagraphs.runtime._interface import Captured, Copy, Runtime, check_bindings, runtime_of
from dynx.cudagraphs.runtime._pointers import NotPatchable

__all__ = ["Captured", "CopiesNotFound", "Copy", "NotPatchable", "Runtime", "check_bindings", "copy_of", "extent", "runtime_of"]
