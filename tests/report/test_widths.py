"""Every screen at every width of the terminal: locations keep their line number, and nothing is wider than the terminal."""

from __future__ import annotations

import io
import re
import unicodedata
from itertools import count, cycle, takewhile
from operator import eq
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from dynx import Run, report
from dynx.records import (
    Attempt,
    BecameDynamic,
    BreakState,
    CacheReport,
    CodeLine,
    Compile,
    CompiledGuards,
    CostNode,
    Effect,
    Entry,
    Events,
    Fix,
    FrameCost,
    FrameEffects,
    FrameState,
    GaveUp,
    GraphBreak,
    GraphCode,
    GuardCosts,
    GuardInfo,
    GuardNode,
    GuardSetting,
    LineCost,
    Location,
    PeakTensor,
    Reason,
    Recompile,
    SavedGraph,
    SavedTensor,
    Skip,
    Skipped,
    Specialized,
    TorchWarning,
    TracedCompile,
    TracedGuard,
    Trial,
    Verdict,
)
from dynx.records.cache_key import CacheCause, CacheDiff
from dynx.records.check import CheckReport, Diff
from dynx.records.cudagraphs import CudagraphReport, GraphPlan, GraphUse
from dynx.records.finding import Finding
from dynx.records.fix_report import FixReport
from dynx.records.profile import (
    DYNAMIC,
    DynamicSize,
    DynamicSizes,
    FrameMatch,
    FrameProfile,
    ProfileChange,
    ProfileData,
    ProfileDiff,
    ProfileMatches,
    Seen,
    SourceProfile,
)
from dynx.records.run_diff import CauseChange, RunDiff, RunTotal
from dynx.records.saved_report import SavedReport
from dynx.records.symbols import Symbol, SymbolReport
from dynx.report._comptime import debugger

WIDTHS = range(40, 201)
PATHS = (
    "/opt/venv/lib/python3.11/site-packages/transformers/models/gpt_neox_japanese/modeling_gpt_neox_japanese.py",
    "/home/somebody/experiments/language models/run of 3 November/train step.py",
    "/home/誰か/実験/言語モデル/訓練.py",
    "/srv/jobs/2026/11/26/0123456789abcdef/checkout/packages/training/configurations/a_very_long_name_of_a_training_step.py",
    "model.py",
)
LONG = "a text of some length that has to be wrapped, since no terminal is as wide as that, with torch._dynamo.config.a_setting"
CAUSE = "ConstraintViolationError: L['x'].size()[0] = 4 is not equal to 5"


class Places:
    """Makes locations with the paths above in turn, each with a line number of its own; has all of them by line number."""

    def __init__(self) -> None:
        self.by_line: dict[int, str] = {}
        self._lines, self._paths = count(10_001), cycle(PATHS)

    def __call__(self, function: str = "GPTNeoXJapaneseModel.forward") -> Location:
        file, line = next(self._paths), next(self._lines)
        self.by_line[line] = file
        if "site-packages" not in file:
            return Location(file, line, function)
        return Location(file, line, function, library="transformers", caller=self("main"))


def a_run(at):
    """Return a run with records of each kind that has a location."""
    events = []
    for number in range(len(PATHS)):
        reason = Reason("size", f"x{number}.size()[1]", "3", "4", at(), holder="argument")
        other = Reason("other", f"self.layers[{number}].state", "3", "4", at())
        break_at = at()
        events += [
            Recompile(0, f"{number}/1", at(), (reason,), 1.0),
            Recompile(0, f"{number}/2", at(), (other,), 0.5),
            GraphBreak(
                break_at, (break_at,), "Failed to trace builtin operator", "Failed to trace builtin operator", callee="print"
            ),
            GraphBreak(at(), (at(),), f"A break of tomorrow {number}", "A break of tomorrow", explanation=LONG),
            GaveUp(0, f"{number}/8", at(), "recompile_limit", 8),
            Compile(0, f"{number}/0", at(), "compiled", 1.5, (Attempt(0, "committed", 1.0),), {"trace": 1.0, "backend": 0.5}),
            Compile(0, f"{number}/0", at(), "skipped", 0.5, (), {"trace": 0.5}, reason=LONG),
            Compile(0, f"{number}/0", at(), "failed", 0.5, (), {"trace": 0.5}, reason=CAUSE),
            BecameDynamic("L['x']", "size 1", "128", "256", 0, f"{number}/1", at()),
            Specialized("L['x'].size()[1]", 0, f"{number}/1", at(), "return x.view(3, -1)"),
            Skipped(at(), "no tensor among its arguments"),
            TorchWarning(LONG, "torch._dynamo", at()),
            Skip(LONG, at(), "keep it on the device"),
            CompiledGuards(0, f"{number}/0", at(), (GuardInfo("value", "self.step", "3", at(), (at(), at())),), 1),
            GraphCode(0, f"{number}/0", at(), (CodeLine("sin = l_x_.sin()", at()), CodeLine("cos = sin.cos()", at())), 0),
            effects(at),
            Trial("DX102", "x.size(0) 3, then 4", at(), Fix("option", "dynamic=True"), "kept", BEFORE, AFTER, True),
        ]
    return Run(tuple(events), {"command": ["dynx", "run", PATHS[3], "--steps", "3"], "torch": "2.13.0"}, {"seconds": 3.0})


BEFORE = Events(recompiles=4, graph_breaks=2, gave_up=1, eager=0, failed=0, seconds=0.5)
AFTER = Events(recompiles=3, graph_breaks=2, gave_up=1, eager=0, failed=0, seconds=0.4)


def effects(at):
    return FrameEffects(0, "0/0", at(), (Effect("L['self'].step", "attribute", "a longer value than before", "3", at()),) * 2)


def cache(at):
    guards = [GuardInfo("type", f"self.decoder.layers[{n}].forward", LONG, at(), (at(), at()), "", "") for n in range(5)]
    return CacheReport(at(), (Entry(0, "0/0", at(), "eager", GuardNode("", "", "", tuple(guards)), resumes=12),))


def verdict(at):
    reasons = tuple(Reason("value", f"self.layers[{n}].step", "2", LONG, at(), "DX114", against="0/0") for n in range(5))
    return Verdict("recompile", at(), reasons=reasons, unknown=(LONG,))


def costs(at):
    node = CostNode("", "", 900.0, 200.0, (), (CostNode("L['n']", "int", 700.0, 700.0, ()),))
    settings = (GuardSetting("in use", 1800.0, 4), GuardSetting("dict tags", 600.0, 4, (LONG,), "looked", "apply"))
    return GuardCosts(at(), 1_500_000.0, (FrameCost("0/0", at(), 900.0, node, 2),), settings)


def check(at):
    diffs = tuple(Diff(f"self.layers[{n}].weight", LONG, "3.0", "value", 1, at()) for n in range(5))
    return CheckReport("step", diffs, 2, 1, location=at(), stage="Dynamo", node="add", node_location=at())


def fixes(at):
    def trial(code, reason=""):
        call = Fix("mark", code, at(), at())
        return Trial("DX102", "x.size(0) 3, then 4", at(), call, "fails" if reason else "kept", BEFORE, AFTER, True, reason)

    code = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    trials = (*(trial(code) for _ in PATHS), *(trial("mark_dynamic(x, 0)", LONG) for _ in PATHS))
    remaining = tuple(Finding("DX102", "x.size(0) 3, then 4", at(), 1.0, (), LONG) for _ in PATHS)
    return FixReport("train.py", BEFORE, AFTER, trials, remaining=remaining, diff="--- a/train.py\n", runs=6, notes=(LONG,))


def run_diff(at):
    causes = [CauseChange("recompile", "Net.forward", LONG, 3, 4, 0.5, 0.25, "DX102", at()) for _ in PATHS]
    causes += [CauseChange("graph break", "Net.forward", "print()", 4, 3, 0.5, 0.25, "DX201", at()) for _ in PATHS]
    return RunDiff((RunTotal("seconds in Dynamo", 1.0, 2.0, "seconds"),), tuple(causes), (LONG,))


def saved(at):
    tensors = tuple(
        SavedTensor(f"tensor{n}", "activation", "aten.gelu.default", "float32", (4, 4), 64, 64, location=at(), module="a.b")
        for n in range(5)
    )
    peaks = tuple(PeakTensor(f"tensor{n}", "aten.mm.default", 64, "saved", at()) for n in range(5))
    return SavedReport((SavedGraph(0, "0/0", at(), tensors, forward_peak=999, at_peak=peaks),))


def symbols(at):
    return SymbolReport("blake63", tuple(symbol(n, at()) for n in range(5)))


def symbol(number, location):
    return Symbol(f"s{number}", f"s{number}", (f"L['x{number}'].size()[0]",), "4", "2", "int_oo", False, "4", location)


def frame(at):
    location = at()
    source = {"L['x']": SourceProfile(None, (DYNAMIC, 8), None, (Seen(0, 4, "r", "0/0"), Seen(0, 6, "r", "0/1")))}
    return FrameProfile(location.file, "", "forward", location.line, qualname="Net.forward", sources=source)


def profile(at):
    return ProfileData(tuple(frame(at) for _ in PATHS), {"r": "2026-11-23T09:10:11 train.py"}, ("2.13.0",))


def profile_diff(at):
    return ProfileDiff(tuple(ProfileChange(frame(at), "L['x']", 0, 4, DYNAMIC) for _ in PATHS))


def matches(at):
    return ProfileMatches(tuple(FrameMatch(frame(at), "moved", line=3, why=LONG) for _ in PATHS))


def dynamic_sizes(at):
    return DynamicSizes(tuple(DynamicSize(at(), "L['x']", 0, (Seen(0, 4, "r", "0/0"),), at()) for _ in PATHS), {"r": "run"})


def cache_diff(at):
    return CacheDiff(tuple(CacheCause("config", "L['x'].dtype", "a", "b", at(), LONG, "DX401") for _ in PATHS), 1, 5)


def graphs(at):
    return CudagraphReport(
        (GraphUse(GraphPlan("forward", (), 1, tuple(Skip(LONG, at(), LONG) for _ in PATHS)), 0, 0, 0, 0, 0),)
    )


def frame_state(at):
    return FrameState(at(), "CALL 1", ("<null>", LONG), {"x": LONG, "path": "model.py"}, ("def f(x):", f"    {LONG}"), 10_000)


def traced_guards(at):
    return tuple(TracedGuard("TENSOR_MATCH", "L['self'].layers[3].weight", at()) for _ in PATHS)


def post_mortem(at):
    frames = tuple(frame_state(at) for _ in PATHS)
    state = BreakState("0/0", 0, at(), "A break", "A break", LONG, (LONG,), frames, "def f():\n  pass", 1, traced_guards(at))
    return report.post_mortem((state,))


def timeline(at):
    lines = tuple(LineCost(at(), f"    y = {LONG}", 3, 0.5, 0.5, ("add",), (), (), 0) for _ in PATHS)
    return report.timeline((TracedCompile("0/0", at(), 1, 0.5, 0.1, 0.0),), lines)


def ranks(at):
    return report.processes([(Path(f"/srv/jobs/{LONG.replace(' ', '_')}/run.rank{n}.dynx"), a_run(at)) for n in range(2)])


SCREENS = {
    "run": lambda at: report.terminal(a_run(at)),
    "run --full": lambda at: report.terminal(a_run(at), full=True),
    "run --top 3": lambda at: report.terminal(a_run(at), top=3, file=Path("/srv/some folder/run of today.dynx")),
    "ranks": ranks,
    "guards": cache,
    "would_recompile": verdict,
    "costs of guards": costs,
    "check": check,
    "fix": fixes,
    "diff": run_diff,
    "memory": saved,
    "effects": effects,
    "symbols": symbols,
    "pgo dump": profile,
    "pgo diff": profile_diff,
    "pgo verify": matches,
    "pgo explain": dynamic_sizes,
    "cache why": cache_diff,
    "cudagraphs.explain": graphs,
    "post-mortem": post_mortem,
    "timeline": timeline,
    "guards of the debugger": lambda at: debugger.guards(list(traced_guards(at))),
}


WITHOUT_LOCATIONS = ("ranks",)


def screens(but=()):
    return pytest.mark.parametrize("name", [name for name in SCREENS if name not in but])


def printed(content, width):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(content)
    return console.file.getvalue().splitlines()


def numbers(lines):
    return set(map(int, re.findall(r":(1\d{4})\b", "\n".join(lines))))


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Paths of a folder far away are shown as they are."""
    monkeypatch.chdir(tmp_path)


@screens(but=WITHOUT_LOCATIONS)
def test_line_numbers_of_a_screen_are_whole_at_every_width(name):
    """`path:line` is copied into an editor, or clicked on: a cut line number names another line."""
    at = Places()
    content = SCREENS[name](at)
    expected = numbers(printed(content, 1000))
    assert expected, "the screen shows no location"
    for width in WIDTHS:
        lines = printed(content, width)
        assert numbers(lines) == expected, (width, expected - numbers(lines), numbers(lines) - expected)


@screens(but=WITHOUT_LOCATIONS)
def test_a_location_is_shortened_from_the_left(name):
    at = Places()
    content = SCREENS[name](at)
    for width in (40, 60, 80, 100, 120, 140, 160, 200):
        for line in printed(content, width):
            for match in re.finditer(r"(?<=\S):(1\d{4})\b", line):  # `also :12` has no path
                path = at.by_line[int(match[1])]
                before = line[: match.start()]
                shown = path[len(path) - sum(takewhile(bool, map(eq, reversed(before), reversed(path)))) :]
                assert cell_len(shown) >= 8, (width, line)
                mark = before[: len(before) - len(shown)][-1:]
                assert shown == path or mark in ("…", " ", "(") or path[: -len(shown)].endswith("/"), (width, line)


@screens()
def test_no_line_of_a_screen_is_wider_than_the_terminal(name):
    content = SCREENS[name](Places())
    for width in WIDTHS:
        too_wide = [line for line in printed(content, width) if cell_len(line) > width]
        assert not too_wide, (width, too_wide)


@screens()
def test_lines_of_a_screen_have_no_blanks_at_their_end(name):
    """A file with the report is compared with another one, and pasted into an issue."""
    content = SCREENS[name](Places())
    for width in (40, 79, 80, 120, 140, 200):
        assert [line for line in printed(content, width) if line != line.rstrip()] == [], width


@screens()
def test_spaces_of_a_path_are_ordinary_ones(name):
    """A path is copied into a shell."""
    text = "\n".join(printed(SCREENS[name](Places()), 100))
    assert {character for character in text if unicodedata.category(character) in ("Zs", "Co")} <= {" "}
