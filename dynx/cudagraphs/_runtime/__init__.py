"""Capture and replay of graphs: `interface` is the protocol, `cuda` implements it with CUDA graphs, `emulator` on the CPU."""
