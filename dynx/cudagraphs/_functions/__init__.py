"""Capture calls of Python functions as CUDA graphs: `fast_path`, `graphed`, `train_step`, built on `recorded_function`."""
