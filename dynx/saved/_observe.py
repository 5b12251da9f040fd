"""Insert the codecs of `saved.hooks` into compiled graphs, and report the tensors that each compiled graph saves."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dynx._handle import Handle
from dynx._reading.user_location import call_site, user_stacklevel
from dynx._torch.autograd.partition import Partition, on_partition
from dynx._torch.autograd.saved_tensors import hide_without_grad, refuse_transforms
from dynx._torch.hooks import Wrapping
from dynx._trace.subscribers import add_record
from dynx.advice import losses
from dynx.errors import DynxWarning, UsageError
from dynx.records.location import Location
from dynx.records.saved import SavedGraph, SavedTensor
from dynx.saved._graphs.describe import Graphs
from dynx.saved._graphs.inline import inline
from dynx.saved._graphs.peaks import Peaks
from dynx.saved._published import Published, published_by

Observer = Callable[[SavedGraph], None]

_lock = threading.RLock()
_uses: list[object] = []  # open handles; torch is hooked while there is one
_wrapping: list[Wrapping] = []
_observers: list[Observer] = []


class SavedGraphs(Handle):
    """Handle that keeps torch patched until `remove()`, so that dynx edits the graphs compiled under `saved.hooks`.

    `observer` is called with a `SavedGraph` for every compiled graph that saves tensors, with or without hooks; while there
    is an observer, `dynx.watch()` records these graphs too.
    """

    __slots__ = ("_observer",)

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
        with _lock:
            if not _uses:
                _wrapping.append(on_partition(_on_partition))
                _wrapping.append(hide_without_grad(_is_published))
                _wrapping.append(refuse_transforms(_is_published, _refused))
            _uses.append(self)
            if observer is not None:
                _observers.append(observer)

    def remove(self) -> None:
        with _lock:
            if self not in _uses:
                return
            _uses.remove(self)
            if self._observer is not None:
                _observers.remove(self._observer)
            if not _uses:
                while _wrapping:
                    _wrapping.pop().remove()


def _is_published(hooks: Any) -> bool:
    return published_by(hooks) is not None


def _refused() -> UsageError:
    return UsageError(
        "torch.func.grad, vjp, jacrev and hessian cannot run under saved-tensor hooks, also in a compiled function\n"
        "  call the function that uses them outside of saved.hooks, or use torch.autograd.grad"
    )


def _on_partition(partition: Partition) -> bool:
    """Insert the codecs of entered `saved.hooks` into the graphs; return True to stop torch from inlining the hooks itself."""
    published = published_by(partition.hooks)
    if published is None and not _observers:
        return False
    peaks = Peaks(partition) if _observers else None
    if published is not None:
        tensors = inline(partition, published.rules, validate=published.validate, schedule=published.schedule)
    else:
        tensors = [saved.record() for saved in Graphs(partition).saved()]
    if any(tensor.location is None for tensor in tensors):  # as in a compiled nn.Sequential, without lines of the user
        site = call_site()
        tensors = [tensor if tensor.location is not None else replace(tensor, location=site) for tensor in tensors]
    graph = _record(tensors, published, peaks)
    if published is not None and published.validate:
        _warn_of_losses(graph)
    return published is not None


def _record(tensors: list[SavedTensor], published: Published | None, peaks: Peaks | None) -> SavedGraph:
    """Make the record of a graph, add it to the compilation in progress, pass it to the observers, and return it."""
    rules = tuple(map(str, published.rules)) if published is not None else ()
    further: dict[str, Any] = peaks.after(tensors) if peaks is not None else {}

    def make(generation: int, compile_id: str, location: Location | None) -> SavedGraph:
        return SavedGraph(generation, compile_id, location, tuple(tensors), published is not None, rules, **further)

    graph = add_record(make, is_emitted=published is not None or bool(_observers))
    for observer in tuple(_observers):
        observer(graph)
    return graph


def _warn_of_losses(graph: SavedGraph) -> None:
    """Warn about saved tensors that a codec rounds, if backward reads them as masks or recomputes other tensors from them."""
    for rule, loss in losses(graph):
        where = f"{loss.location}: " if loss.location is not None else ""
        others = f" (and {len(loss.tensors) - 1} more)" if len(loss.tensors) > 1 else ""
        text = f"{where}{loss.title}{others} ({rule})\n  {loss.advice}"
        warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
