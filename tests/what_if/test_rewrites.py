"""Fixes that rewrite a line, traced with code of which neither a file nor a function of the program knows."""

from __future__ import annotations

import linecache
import math
import sys
from importlib import import_module

import pytest
import torch

from dynx._what_if.rewritten import rewritten
from dynx.records.fix import rewrite
from dynx.records.location import Location
from dynx.session import Watch

pytest.importorskip("libcst")
X = torch.ones(3)


def branching(x):
    y = x * 3

    if y.sum() > 0:  # a comment
        y = y - 1
    return y.relu()


def checked(x):
    refuse_negative(x.abs())
    return x + 1


def refuse_negative(x):
    if x.min() < 0:
        raise ValueError("negative")


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.__limit = 2.0

    def forward(self, x):
        x = self.linear(x)
        if x.norm() > self.__limit:
            x = x / x.norm()
        return x


def early(x):
    if x.sum() > 0:
        return x * 2
    y = x - 1
    return y.relu()


def of_two_types(x):
    if x.sum() > 0:
        x = x.size()
    return x


def twice(x):
    if x.sum() > 0:
        x = x + 1
    if x.mean() > 5:
        x = x + 1
    return x


def factory(scale):
    def scaled(x):
        if x.sum() > scale:
            x = x * scale
        return x

    return scaled


def logged(x):
    y = x + 1
    print("traced")
    return y * 2


def tried(fn, *args, times=1):
    """Return the what-ifs of a compiled function by the name of the fix."""
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(fn, backend="eager")
        for _ in range(times):
            compiled(*args)
    return {each.fix.name: each for each in watch.what_ifs}, watch.findings


@pytest.mark.parametrize(
    ("fn", "name", "code"),
    [
        (branching, "where", "y = torch.where(y.sum() > 0, y - 1, y)"),
        (checked, "assert", 'torch._assert_async(torch.logical_not(x.min() < 0), "negative")'),
        (Scaled(), "where", "x = torch.where(x.norm() > self.__limit, x / x.norm(), x)"),
        (factory(2.0), "where", "x = torch.where(x.sum() > scale, x * scale, x)"),
    ],
    ids=["function", "inlined", "module", "closure"],
)
def test_the_graph_break_is_gone(fn, name, code):
    what_ifs, (finding,) = tried(fn, X)
    assert what_ifs[name].outcome == "removes"
    assert what_ifs[name].written == code
    assert code in finding.advice
    assert "proven: no graph break" in finding.advice


def test_an_early_return_has_more_lines():
    what_ifs, (finding,) = tried(early, X)
    assert what_ifs["where"].outcome == "removes"
    assert finding.advice.startswith("torch.where instead of if (proven: no graph break)")


def test_a_rewrite_that_cannot_be_traced_proves_nothing():
    """Another way to write it might help."""
    what_ifs, (finding,) = tried(of_two_types, X)
    assert what_ifs["where"].outcome == "not proven"
    assert what_ifs["where"].reason.startswith("as dynx fix writes it, it breaks the graph too")
    assert "torch.cond" in finding.advice


def test_the_next_graph_break_has_the_line_of_the_file():
    with Watch(what_if=math.inf) as watch:
        torch.compile(twice, backend="eager")(X)
    first, second = (watch.graph_breaks[number].location.line for number in (0, 1))
    assert second == first + 2
    then = next(each.then for each in watch.what_ifs if each.fix.location.line == first and each.then is not None)
    assert then.location.line == second
    assert "proven: no graph break" in watch.findings[0].advice


def test_a_print_only_in_eager_code():
    what_ifs, _ = tried(logged, X)
    assert what_ifs["eager only"].outcome == "removes"


def test_no_function_of_the_program_changes():
    before = [refuse_negative.__code__, checked.__code__]
    tried(checked, X, times=2)
    assert [refuse_negative.__code__, checked.__code__] == before
    assert checked.__code__ is before[1]
    with pytest.raises(ValueError, match="negative"):
        refuse_negative(-X)


def module_of(tmp_path, monkeypatch, name, text):
    """Import a new module with this source text."""
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return path, import_module(name)


SOURCE = "def step(x):\n    if x.sum() > 0:\n        x = x + 1\n    return x\n"


def test_a_file_that_was_edited_after_its_import_is_not_tried(tmp_path, monkeypatch):
    path, module = module_of(tmp_path, monkeypatch, "edited", f"import torch\n{SOURCE}")
    path.write_text(f"import torch\n{SOURCE.replace('x + 1', 'x + 2')}")
    linecache.checkcache()
    what_ifs, _ = tried(module.step, X)
    assert "where" not in what_ifs


@pytest.mark.parametrize(
    "begin", ["import torch\nfrom torch import nn\n", "try:\n    import torch\nexcept ImportError:\n    pass\n"]
)
def test_calls_of_an_imported_module(tmp_path, monkeypatch, begin):
    """Python compiles `torch.sin(x)` in another way if the module imports `torch`."""
    name = f"imported{len(begin)}"
    _, module = module_of(tmp_path, monkeypatch, name, f"{begin}OTHER = 1\n\n\n{SOURCE.replace('x + 1', 'torch.sin(x)')}")
    what_ifs, _ = tried(module.step, X)
    assert what_ifs["where"].outcome == "removes"


def test_a_condition_on_a_dynamic_size(tmp_path, monkeypatch):
    code = "y = F.scaled_dot_product_attention(x, x, x, is_causal=x.size(2) > 1)"
    source = f"import torch.nn.functional as F\n\n\ndef attend(x):\n    {code}\n    return y * 2\n"
    _, module = module_of(tmp_path, monkeypatch, "attention", source)
    with Watch(what_if=math.inf) as watch:
        compiled = torch.compile(module.attend, backend="eager", dynamic=True)
        for size in (4, 5, 6):
            compiled(torch.ones(1, 1, size, 8))
    (finding,) = (each for each in watch.findings if each.rule == "DX224")
    written = code.replace("x.size(2) > 1", "True if x.size(2) > 1 else False")
    assert finding.advice.startswith(f"write {written} (proven: no graph break); or pass is_causal as an argument")


def test_a_module_without_torch_proves_nothing(tmp_path, monkeypatch):
    """`dynx fix` would add the import, but the globals of the program do not change."""
    _, module = module_of(tmp_path, monkeypatch, "without_torch", SOURCE)
    what_ifs, _ = tried(module.step, X)
    assert what_ifs["where"].outcome == "not proven"
    assert "torch" not in vars(module)


def test_text_that_is_no_code(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("def f(x:\n")
    for line in (1, 7):
        assert not list(rewritten(rewrite("where", Location(str(path), line, "f"))))
    assert not list(rewritten(rewrite("where", Location(str(tmp_path / "missing.py"), 1, "f"))))
    assert not list(rewritten(rewrite("where", Location(torch.nn.functional.__file__, 2000, "dropout"))))
