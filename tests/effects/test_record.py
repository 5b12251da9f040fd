"""`watch.side_effects`: the mutations of a compiled graph, and those that compiled code loses, beside eager code."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter, OrderedDict, deque
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from programs_runner import PROGRAMS as FILES
from programs_runner import expected
from rich.console import Console
from support import mutation_programs as mutations

import dynx
from dynx.comptime import comptime
from dynx.records import FrameEffects
from dynx.records.codec import from_data
from dynx.report import record, terminal

BEFORE_2_13 = torch.torch_version.TorchVersion(torch.__version__) < "2.13"
BEFORE_2_15 = torch.torch_version.TorchVersion(torch.__version__) < "2.15"


def recorded(function, *args):
    """Return the side effects of a function's first compiled call."""
    torch._dynamo.reset()
    with dynx.watch() as watch:
        torch.compile(function, backend="eager")(*args)
    return watch.side_effects


def printed(renderable):
    """Return what a terminal shows."""
    console = Console(width=200, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def is_replaced_by_a_copy(program):
    """Return whether Dynamo builds a new list, so that it changes nothing of the old one: `list *= 2` in 2.11."""
    return BEFORE_2_13 and program.code == "o *= 2" and program.kind == "list"


@pytest.mark.slow
@pytest.mark.parametrize("kind", mutations.KINDS)
def test_a_side_effect_is_reported_as_lost_exactly_if_eager_code_leaves_another_object(kind):
    """The oracle is the program itself, run eagerly and compiled."""
    programs = [program for program in mutations.PROGRAMS if program.kind == kind and not is_replaced_by_a_copy(program)]
    outcomes = {program: mutations.run(program) for program in programs}
    wrong = [str(program) for program, outcome in outcomes.items() if outcome and outcome.differs != bool(outcome.lost)]
    assert wrong == []
    assert sum(outcome is not None for outcome in outcomes.values()) >= len(programs) * 3 / 4


@pytest.mark.parametrize("program", mutations.PROGRAMS[5::61], ids=str)
def test_a_part_of_the_programs_of_each_kind(program):
    outcome = mutations.run(program)
    if outcome is not None and not is_replaced_by_a_copy(program):
        assert outcome.differs == bool(outcome.lost)


def test_there_are_forty_labelled_sites_and_two_thousand_programs():
    files = sorted((FILES / "effects").glob("*.py"))
    sites = {(path.name, *finding) for path in files for finding in expected(path.read_text())}
    assert sum(rule.startswith("DX8") for _, rule, _ in sites) >= 40
    assert len(mutations.PROGRAMS) >= 2000


FULL_DEQUE_LINES = mutations.lines("""
    o.append(9)   o.appendleft(8)   o.pop()   o.popleft()   o.clear()   o.extend([5, 6])   o.reverse()   o[0] = 4   o.rotate(1)
""")


@pytest.mark.parametrize("seed", range(100))
def test_full_deques_in_random_sequences_of_mutations(seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(len(FULL_DEQUE_LINES), (1 + seed % 5,), generator=generator).tolist()
    code = "; ".join(FULL_DEQUE_LINES[number] for number in numbers)
    for kind in ("full deque", "full deque subclass"):
        outcome = mutations.run(mutations.Program(kind, code))
        if outcome is not None:
            assert outcome.differs == bool(outcome.lost), code


@pytest.mark.parametrize(
    "code",
    [
        "o.append(9); o.append(o.popleft())",
        "o.append(9); o.append(8); n = o.popleft(); o.append(n)",
        "o.append(9); o.append(8); n = o.pop(); o.append(n)",
        "o.append(9); o.popleft(); o.extend([5, 6])",
    ],
)
def test_a_full_deque_that_stores_what_it_gave_up(code):
    """Dynamo takes the item from a deque that holds too many."""
    outcome = mutations.run(mutations.Program("full deque", code))
    assert outcome.differs == bool(outcome.lost) == ("popleft" in code and "extend" not in code)


def test_text_of_a_full_deque_shows_what_it_has_room_for():
    frames = recorded(lambda window, x: (window.append(4), x + 1)[1], deque([1, 2, 3], maxlen=3), torch.ones(2))
    (effect,) = frames[0].effects
    assert (effect.before, effect.after) == ("deque([1, 2, 3], maxlen=3)", "deque([2, 3, 4], maxlen=3)")


class Model:
    def __init__(self):
        self.step, self.history, self.names = 0, [], {"a": 1}

    def advance(self):
        self.step += 1
        self.history.append(self.step)


counted = 0


def test_effects_are_in_the_order_of_the_replay_and_events_in_that_of_the_program():
    def forward(model, seen, x):
        global counted
        model.advance()
        seen.add(7)
        del model.names["a"]
        counted += 1
        model.advance()
        return x + 1

    frames = recorded(forward, Model(), set(), torch.ones(2))
    (frame,) = frames
    found = {effect.source: (effect.kind, effect.before, effect.after, effect.emitted) for effect in frame.effects}
    assert found == {
        "L['model'].step": ("attribute", "0", "2", True),
        "L['model'].history": ("items", "[]", "[1, 2]", True),
        "L['seen']": ("items", "set()", "{7}", True),
        "L['model'].names": ("items", "{'a': 1}", "{}", True),
        "counted": ("global", "0", "1", True),
    }
    assert [(event.source.removeprefix("L['model']."), event.kind) for event in frame.events] == [
        ("step", "attribute"),
        ("history", "items"),
        ("L['seen']", "items"),
        ("names", "items"),
        ("counted", "global"),
        ("step", "attribute"),
        ("history", "items"),
    ]
    assert sorted(effect.order for effect in frame.effects) == [0, 1, 2, 3, 4]
    assert frame.reason == "return_value"
    assert frame.replays
    (step,) = (effect for effect in frame.effects if effect.source.endswith("step"))
    assert (step.location.file, step.code) == (__file__, "self.step += 1")
    assert [location.function.rpartition(".")[2] for location in step.stack] == ["forward", "advance"]


def test_cells_positions_and_slots():
    total = 0

    def forward(held, numbers, x):
        nonlocal total
        total += next(numbers)
        held.step = 5
        return x + total

    frames = recorded(forward, mutations.Slots(), iter((1, 2, 3)), torch.ones(2))
    found = {effect.source.rpartition("[")[2]: (effect.kind, effect.before, effect.after) for effect in frames[0].effects}
    assert found["total"] == ("cell", "0", "1")
    assert found["'held'].step"] == ("attribute", "0", "5")
    assert ("position", "at item 0", "at item 1") in found.values()
    assert not frames[0].dropped
    assert not frames[0].unannounced


def test_mutations_that_dynamo_notes_and_does_not():
    """Before 2.13 and 2.15, Dynamo changes a subclass of set, and its copy of a list, without noting a mutation."""

    def forward(history, cache, x):
        history += [1]
        cache.move_to_end("a")
        return x + 1

    (frame,) = recorded(forward, mutations.L(), OrderedDict(a=1, b=2), torch.ones(2))
    assert len(frame.unannounced) == BEFORE_2_15
    assert [effect.source for effect in frame.dropped] == ["L['cache']"]


def test_mutations_of_containers_that_the_traced_code_creates_are_no_events():
    def forward(steps, x):
        parts, names = [], {}
        for i in range(3):
            parts.append(x)
            names[i] = i
        steps.append(len(parts) + len(names))
        return torch.stack(parts)

    (frame,) = recorded(forward, [], torch.ones(2))
    assert [event.source for event in frame.events] == ["L['steps']"]


def test_function_without_side_effects_has_no_record():
    frames = recorded(lambda steps, x: x + len(steps), [1, 2], torch.ones(2))
    assert frames == ()


def test_each_graph_after_a_graph_break_has_its_own_record():
    def forward(steps, x):
        steps.append(1)
        torch._dynamo.graph_break()
        steps.append(2)
        return x + 1

    frames = recorded(forward, [], torch.ones(2))
    assert [(frame.effects[0].before, frame.effects[0].after) for frame in frames] == [("[]", "[1]"), ("[1]", "[1, 2]")]
    assert frames[0].reason != frames[1].reason == "return_value"


def test_attempt_that_was_discarded_has_no_record():
    """A graph break in a `with` block makes Dynamo begin again, or run the function eagerly."""

    def forward(steps, x):
        steps.append(1)
        with torch.no_grad():
            x = x + 1
            torch._dynamo.graph_break()
        return x

    frames = recorded(forward, [], torch.ones(2))
    assert [frame.effects[0].after for frame in frames] == ["[1]"]


def test_function_that_runs_eagerly_has_no_record():
    def generate(steps, x):
        steps.append(1)
        yield x

    def forward(steps, x):
        steps.append(1)
        for _ in generate(steps, x):
            torch._dynamo.graph_break()
        return x

    steps = []
    frames = recorded(forward, steps, torch.ones(2))
    assert steps == [1, 1]
    assert all(effect.emitted for frame in frames for effect in frame.effects)


def test_compiled_code_is_the_same_with_and_without_recording():
    def forward(model, cache, x):
        model.advance()
        cache.update(b=x, c=2)
        return x * model.step

    def run(recording):
        torch._dynamo.reset()
        backend = torch._dynamo.testing.EagerAndRecordGraphs()
        codes = []
        handle = torch._dynamo.convert_frame.register_bytecode_hook(lambda old, new: codes.append(new.co_code))
        try:
            with dynx.watch() if recording else nullcontext():
                torch.compile(forward, backend=backend)(Model(), mutations.D(), torch.ones(2))
        finally:
            handle.remove()
        return [graph.code for graph in backend.graphs], codes

    assert run(recording=True) == run(recording=False)


def test_recording_in_two_threads_keeps_the_effects_of_both():
    torch._dynamo.reset()

    def work(name):
        def forward(steps, x):
            steps.append(name)
            return x + 1

        torch.compile(forward, backend="eager")([], torch.ones(2))

    with dynx.watch() as watch:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert Counter(frame.effects[0].after for frame in watch.side_effects) == {f"['{name}']": 1 for name in "abcd"}


def test_nothing_is_recorded_after_the_block_and_two_blocks_record_the_same():
    torch._dynamo.reset()
    with dynx.watch() as outer, dynx.watch() as inner:
        torch.compile(lambda steps, x: (steps.append(1), x + 1), backend="eager")([], torch.ones(2))
    torch._dynamo.reset()
    torch.compile(lambda steps, x: (steps.append(1), x + 2), backend="eager")([], torch.ones(2))
    assert outer.side_effects == inner.side_effects
    assert len(outer.side_effects) == 1


def test_report_as_json_as_text_and_as_html():
    frames = recorded(lambda cache, x: (cache.move_to_end("a"), x + 1)[1], OrderedDict(a=1, b=2), torch.ones(2))
    (frame,) = frames
    assert from_data(FrameEffects, json.loads(frame.to_json())) == frame
    for text in (printed(record(frame)), frame._repr_html_()):
        assert "LOST" in text
        assert "cache" in text


@pytest.mark.slow
def test_methods_of_the_user_change_a_log_in_the_order_of_the_program():
    """What tells the order of calls is what the methods leave behind."""

    class Logged(dict):
        def __init__(self, log):
            super().__init__()
            self.log = log

        def __setitem__(self, key, value):
            self.log.append(("set", key))
            super().__setitem__(key, value)

        def __delitem__(self, key):
            self.log.append(("delete", key))
            super().__delitem__(key)

    def forward(first, second, x):
        first["a"] = 1
        second["b"] = 2
        del first["a"]
        first["c"] = 3
        return x + 1

    calls = []
    dynx.check(forward, Logged(calls), Logged(calls), torch.ones(2)).assert_ok()
    frames = recorded(forward, Logged(calls), Logged(calls), torch.ones(2))
    assert calls == [("set", "a"), ("set", "b"), ("delete", "a"), ("set", "c")]
    assert not any(frame.dropped for frame in frames)


def test_a_class_whose_methods_raise_is_never_called():
    class Angry(dict):
        def __repr__(self):
            raise RuntimeError("repr")

        def __iter__(self):
            raise RuntimeError("iter")

        def __eq__(self, other):
            raise RuntimeError("eq")

        __hash__ = None

    frames = recorded(lambda angry, x: (angry.__setitem__("a", 1), x + 1)[1], Angry(), torch.ones(2))
    (frame,) = frames
    assert [effect.emitted for effect in frame.effects] == [True]


def test_side_effects_and_is_modified_while_tracing():
    seen, modified = [], []

    def forward(model, names, window, x):
        model.step = 3
        names["b"] = 2
        comptime(lambda ctx: seen.extend(ctx.side_effects()))
        comptime(lambda ctx: modified.extend(ctx.is_modified(name) for name in ("model", "names", "window")))
        return x + len(window)

    names = mutations.D(a=1)
    torch._dynamo.reset()
    torch.compile(forward, backend="eager")(Model(), names, deque(), torch.ones(2))
    found = {(effect.source, effect.kind): (effect.before, effect.after, effect.emitted) for effect in seen}
    assert found[("L['model'].step", "attribute")] == ("0", "3", None)
    assert found[("L['names']", "items")][0] == "D({'a': 1})"
    assert all(Path(effect.location.file) == Path(__file__) for effect in seen)
    assert modified[0].attributes == ("step",)
    assert [item.items for item in modified] == [False, True, False]
    assert [bool(item) for item in modified] == [True, True, False]


def test_findings_of_lost_side_effects_come_first():
    def forward(cache, x):
        cache.move_to_end("a")
        return x + 1

    torch._dynamo.reset()
    compiled = torch.compile(forward, backend="eager", dynamic=False)
    with dynx.watch() as watch:
        for size in range(2, 6):
            compiled(OrderedDict(a=1, b=2), torch.ones(size))
    first, *others = watch.run.findings
    assert (first.rule, first.wrong, first.count) == ("DX801", True, 4)
    assert others
    assert not any(finding.wrong for finding in others)
    assert "wrong" in printed(terminal(watch.run))
