"""Recordings of functions without a compiled graph: `fast_path`, `graphed`, `train_step`, on `recorded_function`."""
