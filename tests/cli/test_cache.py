"""`dynx cache why A B`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dynx import Run
from dynx.cli import main
from dynx.records import CacheEvent, CacheKey, CodeLine, KeySettings, Location

MODEL = Location("model.py", 12, "Block.forward")
LINE = Location("model.py", 14, "Block.forward")
CODE = (CodeLine("def forward(self, s97 : torch.SymInt, x : torch.Tensor):"), CodeLine("    y = x * 2;  x = None", LINE))


def run(**changed):
    """Return a run with one key; `changed` are parts of the key."""
    parts = {"L['x'].size()[0]": "s97", "L['x']": "dtype=torch.float32; shape=[s97, 8]; stride=[8, 1]", "gm": "hash 1"}
    symbols, graph = changed.pop("symbols", {"s97": "L['x'].size()[0]"}), changed.pop("graph", CODE)
    settings = KeySettings(
        str(changed.get("max_autotune")), {"torch._inductor.config.max_autotune": changed.pop("max_autotune", "False")}
    )
    parts |= changed
    digest = str((parts, settings.digest, graph))
    key = CacheKey("aot_autograd", digest, 0, "0/0", MODEL, False, "/caches", settings.digest, parts, symbols, graph)
    return Run((settings, key, CacheEvent("aot_autograd", "miss", 0, "0/0", MODEL)))


@pytest.fixture
def why(tmp_path, capsys):
    def call(first, second, *options):
        first.save(tmp_path / "a.dynx")
        second.save(tmp_path / "b.dynx")
        code = main(["cache", "why", str(tmp_path / "a.dynx"), str(tmp_path / "b.dynx"), *options])
        return code, capsys.readouterr().out

    return call


def lines(text):
    return [line.rstrip() for line in text.splitlines()]


def test_the_name_of_a_symbol(why):
    renamed = {"L['x'].size()[0]": "s98", "L['x']": "dtype=torch.float32; shape=[s98, 8]; stride=[8, 1]", "gm": "hash 2"}
    graph = (CodeLine(CODE[0].text.replace("s97", "s98")), CODE[1])
    code, text = why(run(), run(symbols={"s98": "L['x'].size()[0]"}, graph=graph, **renamed))
    assert code == 1
    assert lines(text) == [
        "1 of 1 key differs  1 cause",
        "",
        "symbol name: name of x.size(0)  model.py:12, DX403",
        "  s97 in the first run, s98 in the second",
        "  → call dynx.symbols.install() in both runs, before the first compilation",
    ]


def test_a_setting_and_a_line_of_the_graph(why):
    graph = (CODE[0], CodeLine("    y = x + x;  x = None", LINE))
    code, text = why(run(), run(max_autotune="True", graph=graph, gm="hash 2"))
    assert code == 1
    assert lines(text)[2:] == [
        "setting: torch._inductor.config.max_autotune  model.py:12",
        "  False in the first run, True in the second",
        "  → set it to the same value in both runs",
        "",
        "graph: line 2  model.py:14",
        "  - y = x * 2",
        "  + y = x + x",
        "  → the function was traced to another graph: look at its source, constants and",
        "  flags such as train() at this line",
    ]


def test_nothing_missed(why):
    hit = Run(tuple(event for event in run().events if not isinstance(event, CacheEvent)))
    assert why(run(), hit) == (0, "all keys are the same  no graph missed the caches\n")


def test_every_graph_was_found_under_other_keys(why):
    """A cache with several writers: the exit code is 0, whichever run stored the graph."""
    second = run(cache_key_tag="'b'")
    hits = tuple(replace(event, result="hit") if isinstance(event, CacheEvent) else event for event in second.events)
    code, text = why(run(), Run(hits))
    assert (code, text) == (0, "every graph was found  1 under a key that the first run does not have\n")


def test_a_cache_that_one_run_bypassed(why):
    bypass = Run(
        tuple(
            replace(event, result="bypass", reason="no") if isinstance(event, CacheEvent) else event for event in run().events
        )
    )
    code, text = why(bypass, Run((*run().events[:2], *bypass.events[2:])))
    assert code == 1
    assert lines(text)[2:4] == ["bypass: AOTAutograd cache  model.py:12, DX402", "  no"]


def test_json(why):
    code, text = why(run(), run(cache_key_tag="'b'"), "--json")
    (cause,) = json.loads(text)["causes"]
    assert code == 1
    assert (cause["kind"], cause["component"], cause["after"]) == ("state", "torch.compiler.config.cache_key_tag", "'b'")


def test_a_run_without_keys_cannot_be_compared(why):
    code, text = why(run(), Run())
    assert code == 2
    assert lines(text)[0] == "the second run has no keys of graphs"
    assert "--detail full" in text


def test_a_file_of_something_else(tmp_path, capsys):
    (tmp_path / "a.dynx").write_text("something else")
    assert main(["cache", "why", str(tmp_path / "a.dynx"), str(tmp_path / "a.dynx")]) == 2
    assert "is not a dynx run file" in capsys.readouterr().err
