"""The attributes and methods of the classes of modules, which a program may replace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from types import FunctionType
from typing import Any

from torch import nn

from dynx._torch.ops.fast_checks import attributes_of_class
from dynx.cudagraphs._state.identity import identity_of


def classes_of(modules: Iterable[nn.Module]) -> list[type]:
    """Return the classes of modules and their bases, each once."""
    bases = (base for kind in dict.fromkeys(map(type, modules)) for base in kind.__mro__)
    return [base for base in dict.fromkeys(bases) if base is not object]


def class_dicts(modules: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """Return the dicts that hold the attributes of the classes of modules."""
    return [attributes_of_class(kind) for kind in classes_of(modules)]


def class_key(kind: type) -> tuple[tuple[str, Hashable], ...]:
    """Return names and identities of what a class defines, without what Python itself adds when it is asked for."""
    return tuple((name, identity_of(value)) for name, value in tuple(vars(kind).items()) if _is_defined(name, value))


def _is_defined(name: str, value: Any) -> bool:
    return not name.startswith("__") or type(value) is FunctionType
