"""Rules DX6xx: operations that `dynx.cudagraphs` cannot capture in a CUDA graph, and parameters that it copies on each call."""
