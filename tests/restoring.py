"""Contexts that change something and put it back."""

from __future__ import annotations

import contextlib


@contextlib.contextmanager
def setting(get, put, value):
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def attribute(owner, name, value):
    return setting(lambda: getattr(owner, name), lambda to: setattr(owner, name, to), value)


@contextlib.contextmanager
def removed(owner, name):
    before = getattr(owner, name)
    delattr(owner, name)
    try:
        yield
    finally:
        setattr(owner, name, before)
