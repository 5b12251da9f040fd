"""Where graphs are captured: `cuda` on a CUDA device, `emulator` on the CPU for tests; `interface` is what both offer."""
