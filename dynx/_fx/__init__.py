"""Analysis of FX graphs of ATen operators: tensors and source lines of nodes, memory that they read and write, peak memory."""
