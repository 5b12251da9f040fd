"""Capture compiled graphs, Python functions and training steps as CUDA graphs, and replay them.

A CUDA graph is a recording of kernel launches with fixed pointers: replaying it takes one call on the host instead of
hundreds, but runs the same kernels on the same memory, whatever the Python code would do in this call. This package makes
that safe. A *recording* is one captured CUDA graph with its memory. A *plan* says how an FX graph is captured: the class of
each input, and the pieces if the graph is split around operators that cannot be captured.

**The problem.** A replay does not run Python. It is correct only while nothing that the captured call depended on changes:

- *inputs* have to be at the addresses that the kernels read. Each input of a graph has a class: `static` (a parameter or
  buffer, read in place), `managed` (in the memory of another recording), `dynamic` (another tensor in each call: copied, or
  its pointer is set), `scalar` (a number: part of the cache key), `generator` (of random numbers; replays advance it),
  `untouched` (no kernel reads it), `opaque` (an object of another type: nodes that take it cannot be captured).
- *outputs* are in the recording's memory, which the next replay overwrites: they are cloned or, on request, returned as
  aliases that raise if they are used after the next call, or as they are (`outputs="static"`).
- *state* that Python reads during the capture (attributes of modules, options of an optimizer, autocast, grad mode) is
  constant in all replays.
- *memory* of a graph's pool is shared with other graphs of the pool: tensors saved for a backward pass must survive other
  replays.

**Invariants.**

1. A recording is replayed only if the layouts, scalars, addresses and state that a call depends on are those of the capture:
   the call has the same key as the recording or, which is faster, fulfills the recording's predicate. Otherwise the call is
   recorded too, or runs uncaptured (as eager or compiled code, without a CUDA graph).
2. The first call of a compiled graph, and of a function with certain layouts and state, runs uncaptured: it initializes what
   cannot be initialized in a capture, such as libraries, and shows what the function mutates.
3. While a backward pass needs tensors that a replay saved, that recording is pending and is not replayed; another recording is
   made.
4. A graph or function that cannot be captured runs uncaptured, with a warning that says why and, if it is known, at which line
   of the user's code; with `or_error` it raises. `stats().skips` lists what was not captured.
5. A recording keeps no tensor among the arguments alive. It keeps parameters alive, through their modules, and tensors that
   the function refers to by name, since it reads their memory.
6. Graphs that share memory or a cuBLAS workspace are replayed one after the other, on whatever streams; memory is reused only
   when no stream uses it any more.

**Consequences.** Changed shapes and scalars cost one recording each, bounded by `max_recordings`. Inputs at changing
addresses are copied. No two captures in a process overlap. On a CPU, `Config(runtime="emulator")` runs the same code against an
emulator that fails where CUDA would: the tests of this package run on both.

The folders, from what users call down to the device: `_compiled` (the backend of torch.compile), `_functions` (`fast_path`,
`graphed`, `train_step`), `_refusals` (what a replay would not repeat), `_state` (what a recording depends on), `_search` (the
objects that a function refers to), `_graph` (FX analysis), `_recording` (one captured graph), `_runtime` (CUDA, emulator).
"""

from __future__ import annotations

from dynx.cudagraphs._compiled.backend import backend
from dynx.cudagraphs._compiled.explain import explain
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._functions.fast_path import fast_path
from dynx.cudagraphs._functions.graphed import graphed
from dynx.cudagraphs._functions.raw_graphs import RawGraph, raw_graphs
from dynx.cudagraphs._functions.recorded_function import RecordedCallable
from dynx.cudagraphs._functions.train_step import train_step
from dynx.cudagraphs._recording.cache import close_all
from dynx.cudagraphs._stats import reset_stats, stats

__all__ = [
    "Config",
    "RawGraph",
    "RecordedCallable",
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
    """Close all recordings (captured CUDA graphs), release their memory, and set the statistics to zero.

    Graphs and functions that are called again are recorded again.

    Example:
        >>> from dynx import cudagraphs
        >>> cudagraphs.reset()
        >>> cudagraphs.stats().recordings
        0
    """
    close_all()
    reset_stats()
