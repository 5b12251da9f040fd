"""CUDA graphs of what torch.compile compiles."""

from __future__ import annotations

from dynx.cudagraphs._compiled.backend import backend
from dynx.cudagraphs._compiled.explain import explain
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.fast_path import fast_path
from dynx.cudagraphs._functions.graphed import graphed
from dynx.cudagraphs._functions.raw_graphs import RawGraph, raw_graphs
from dynx.cudagraphs._functions.train_step import TrainStep, train_step
from dynx.cudagraphs._recording.cache import close_all
from dynx.cudagraphs._stats import forget, stats

__all__ = [
    "Config",
    "RawGraph",
    "TrainStep",
    "backend",
    "explain",
    "fast_path",
    "graphed",
    "raw_graphs",
    "reset",
    "stats",
    "train_step",
]


def reset() -> None:
    """Give back the memory of all recordings and count anew; compiled functions record again when they are called."""
    close_all()
    forget()
