"""A function that is called once a module has been imported leaves the import as it is."""

from __future__ import annotations

import importlib.util
import inspect
import sys

import pytest

from dynx._on_import import on_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "imported_later.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "imported_later"
    sys.modules.pop("imported_later", None)


def test_the_function_is_called_once_after_the_import(module):
    before, calls = list(sys.meta_path), []
    on_import(module, lambda: calls.append(sys.modules[module].VALUE))
    assert calls == []
    imported = importlib.import_module(module)
    importlib.reload(imported)
    assert calls == [3]
    assert sys.meta_path == before


def test_the_module_is_as_without_it(module):
    on_import(module, lambda: None)
    imported = importlib.import_module(module)
    assert type(imported.__loader__).__module__ == type(imported.__spec__.loader).__module__ != "dynx._on_import"
    assert inspect.getsource(imported) == "VALUE = 3\n"


def test_who_only_looks_for_the_module_sees_its_loader(module):
    calls = []
    on_import(module, lambda: calls.append(1))
    assert importlib.util.find_spec(module).loader.get_source(module) == "VALUE = 3\n"
    assert calls == []
    importlib.import_module(module)
    assert calls == [1]


def test_the_function_is_called_at_once_where_the_module_is_imported_already(module):
    calls = []
    importlib.import_module(module)
    on_import(module, lambda: calls.append(1))
    assert calls == [1]


def test_an_import_that_fails_may_be_tried_again(tmp_path, module):
    before, calls = list(sys.meta_path), []
    on_import(module, lambda: calls.append(1))
    (tmp_path / "imported_later.py").write_text("raise KeyError(1)\n")
    with pytest.raises(KeyError):
        importlib.import_module(module)
    assert calls == []
    (tmp_path / "imported_later.py").write_text("VALUE = 44\n")
    importlib.invalidate_caches()
    assert importlib.import_module(module).VALUE == 44
    assert calls == [1]
    assert sys.meta_path == before
