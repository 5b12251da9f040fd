"""Context managers that change a setting and restore it."""

from __future__ import annotations

import contextlib


@contextlib.contextmanager
def setting(get, put, value):
    """Call `put(value)`, and restore what `get()` returned before."""
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def attribute(owner, name, value):
    """Set an attribute, and restore its value."""
    return setting(lambda: getattr(owner, name), lambda new: setattr(owner, name, new), value)


def item(owner, key, value):
    """Set an item of a list or dict, and restore its value."""
    return setting(lambda: owner[key], lambda new: owner.__setitem__(key, new), value)


@contextlib.contextmanager
def removed(owner, name):
    """Delete an attribute, and restore it."""
    before = getattr(owner, name)
    delattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, before)
