"""Who wrote a module, and the names that code reads."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
import torch

from dynx._reading.names import names_in
from dynx._reading.owner import owner_of_class, owner_of_module


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("settings", "user"),
        ("_cython_3_2_5", "library"),  # where Cython keeps the types that compiled modules share
        ("cython_runtime", "library"),
        ("swig_runtime_data4", "library"),
        ("torch.generated", "torch"),
        ("json.generated", "python"),
        ("pytest.generated", "library"),
    ],
)
def test_the_owner_of_a_module_without_a_file(name, owner):
    assert owner_of_module(ModuleType(name)) == owner


def test_the_owner_of_modules_with_files():
    assert [owner_of_module(module) for module in (json, torch, pytest, sys.modules[__name__])] == [
        "python",
        "torch",
        "library",
        "user",
    ]


def test_the_owner_of_a_class():
    class Settings:
        verbose = False

    assert [owner_of_class(cls) for cls in (Settings, int, json.JSONDecoder)] == ["user", "python", "python"]


def test_names_of_inner_functions_are_read_too():
    def outer(owner):
        def inner():
            return sys.path, owner.name

        return inner

    names = names_in(outer.__code__)
    assert "sys" in names.variables
    assert {"path", "name"} <= names.attributes
