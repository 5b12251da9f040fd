"""`CacheKeys`: record the keys of graphs in torch's caches on disk, with the parts of each key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from dynx._bytecode.functions import function_at, functions_in
from dynx._handle import Handle
from dynx._torch.shapes.cache_key import RawKey, watch_keys
from dynx._torch.shapes.known_sizes import profile_names
from dynx._torch.shapes.symbol_facts import is_fixed
from dynx._trace.compile_details import code_records
from dynx._trace.dispatch import emit
from dynx._trace.subscribers import generation
from dynx.errors import UnsupportedTorch
from dynx.records import Location, Record, Trouble
from dynx.records.cache_key import CacheKey, KeySettings


class CacheKeys(Handle):
    """Handle that calls the function `record` with the key of each graph that torch looks up in its caches on disk."""

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._places: dict[str, Location] = {}  # by compile id; a backward graph is compiled after its compilation has ended
        self._settings: set[str] = set()
        self._has_graph: set[tuple[int, str]] = set()
        self._listener: Handle | None = None
        try:
            self._listener = watch_keys(self._note, lambda hook, error: emit(_trouble(error)))
        except UnsupportedTorch as error:
            record(_trouble(error))  # not through the bus, which may have no listener yet

    def remove(self) -> None:
        """Stop recording cache keys."""
        if self._listener is not None:
            self._listener.remove()

    def on_start(self, compile_id: str, location: Location) -> None:
        """Store the location of the function whose compilation begins, for its cache keys; call it for each compilation."""
        self._places[compile_id] = location

    def _note(self, raw: RawKey) -> None:
        digest = hashlib.blake2b(repr(raw.settings).encode(), digest_size=8).hexdigest()
        if digest not in self._settings:
            self._settings.add(digest)
            self._record(KeySettings(digest, raw.settings))
        place = generation(), raw.compile_id
        if raw.cache == "aot_autograd":
            self._has_graph.add(place)
        elif place in self._has_graph:
            raw = raw._replace(graph=[])  # omitted: derived from the graph of the AOTAutograd key
        graph, omitted = code_records(raw.graph)
        symbols = [symbol for symbol in raw.symbols if symbol.sources]
        location = self._places.get(raw.compile_id)
        self._record(
            CacheKey(
                raw.cache,
                raw.digest,
                *place,
                location,
                raw.is_backward,
                raw.directory,
                digest,
                raw.parts,
                {symbol.name: symbol.sources[0] for symbol in symbols if symbol.value is None},
                graph,
                omitted,
                {symbol.sources[0]: symbol.value for symbol in symbols if symbol.value is not None and is_fixed(symbol)},
                profile_names(),
                _text_hash(location),
            )
        )


def _text_hash(location: Location | None) -> str | None:
    """Return a hash of a function's source text, which shows whether the function was edited between two runs."""
    if location is None:
        return None
    function = function_at(functions_in(location.file), location.function.rpartition(".")[2], location.line)
    return function.digest if function is not None else None


def _trouble(error: BaseException) -> Trouble:
    return Trouble("keys of the caches on disk", f"{type(error).__name__}: {error}")
