"""Analysis of FX graphs of ATen operators: their tensors and lines, the memory that each node reads and writes, live bytes."""
