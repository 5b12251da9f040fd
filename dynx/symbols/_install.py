"""Install a scheme: a function that computes the number in the name of a symbol (77 in `s77`) from its source."""

from __future__ import annotations

from dynx._handle import Handle
from dynx._torch.shapes.symbol_ids import replace_ids
from dynx.symbols._schemes import Scheme, allocator, scheme_of

_installed: list[InstalledScheme] = []


class InstalledScheme(Handle):
    """Handle of an installed scheme for names of symbols; `remove()` restores torch's own names."""

    def __init__(self, name: str, scheme: Scheme) -> None:
        self.name, self.scheme = name, scheme
        self._wrapping = replace_ids(allocator(scheme))
        _installed.append(self)

    def remove(self) -> None:
        """Name new symbols as before `install`; symbols that exist keep their names."""
        self._wrapping.remove()
        if self in _installed:
            _installed.remove(self)

    def __repr__(self) -> str:
        return f"<scheme {self.name} for names of symbols, {'installed' if self in _installed else 'removed'}>"


def install(scheme: str | Scheme = "blake63") -> InstalledScheme:
    """Name symbols by a hash of their source, so that a name does not depend on the other symbols of a graph.

    torch uses a hash modulo 100 or, if that number is in use, the next free number. If a size is dynamic in only one of two
    processes, other symbols may have different names, and so may the keys of the FX graph cache and of the AOTAutograd cache.

    All processes that share a cache have to use the same scheme. Names are part of the cache keys: in the first run after
    `install`, graphs that were stored with torch's own names are misses.

    Args:
        scheme: `"blake63"` or `"blake31"`, the first 63 or 31 bits of the BLAKE2b hash; or a function `(source, attempt)` that
            returns a non-negative int and depends only on its arguments: the source, such as `L['x'].size()[0]`, and the
            attempt, which starts at 0 and increases by 1 each time that the returned number is already in use.

    Returns:
        A handle and context manager; `remove()` restores torch's method exactly. The newest installed scheme applies.

    Raises:
        UsageError: no scheme has this name, or the function does not return the same non-negative int in equal calls.
        UnsupportedTorch: torch has no `ShapeEnv._generate_unique_id(source_name)`.

    Example:
        >>> import torch
        >>> from dynx import symbols
        >>> names = []
        >>> def backend(graph_module, example_inputs):
        ...     names.extend(symbol.name for symbol in symbols.report(graph_module).symbols)
        ...     return graph_module
        >>> with symbols.install():
        ...     _ = torch.compile(lambda x: x * 2, backend=backend, dynamic=True)(torch.ones(3))
        >>> names
        ['s4146861361025460241']
    """
    name = scheme if isinstance(scheme, str) else getattr(scheme, "__name__", type(scheme).__name__)
    return InstalledScheme(name, scheme_of(scheme))


def active() -> InstalledScheme | None:
    """Return the handle of the scheme that names symbols now; None if torch itself names them."""
    return _installed[-1] if _installed else None
