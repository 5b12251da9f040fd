"""Rules DX6xx: operations that `dynx.cudagraphs` runs without capture, and parameters that it copies on each call."""
