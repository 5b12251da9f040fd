"""CUDA graphs of what torch.compile compiles."""

from __future__ import annotations

from dynx.cudagraphs._backend import backend
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._explain import explain
from dynx.cudagraphs._fast_path import fast_path
from dynx.cudagraphs._graphed import graphed
from dynx.cudagraphs._raw import RawGraph, raw_graphs
from dynx.cudagraphs._recordings import close_all
from dynx.cudagraphs._stats import forget, stats
from dynx.cudagraphs._train_step import TrainStep, train_step

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
