"""The public names of every package, in a list: adding or removing one requires an edit here."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import dynx
from dynx.records import Record

EXPORTED = {
    "dynx": """
        Run __version__ autograd check compile comptime cudagraphs doctor effects errors fix guards pgo records saved
        symbols watch would_recompile
    """,
    "dynx.advice": "RULES advise expected_breaks losses page rule_of_break rule_of_reason spoken",
    "dynx.autograd": """
        BackwardCapture BackwardHook BackwardNode CaptureLog CaptureReport CaptureVerdict OrderError RecaptureReason
        capture check_order
    """,
    "dynx.cli": "main",
    "dynx.comptime": """
        ComptimeContext ComptimeVar PostMortem Probe Timeline comptime debug post_mortem probe timeline
    """,
    "dynx.cudagraphs": """
        Config RawGraph RecordedCallable backend explain fast_path graphed raw_graphs reset stats train_step
    """,
    "dynx.errors": """
        BadCodec BadProfile BadRunFile CaptureError CaptureFailed CheckFailed CompiledDiffers ComptimeFailed DynxError
        DynxWarning NoSuchLocal NotConstant NotIsolated ProbeFailed ReplayDiffers StaleEntry UnknownRule UnsupportedTorch
        UsageError
    """,
    "dynx.effects": "CheckReport Diff Effect FrameEffects Leak Modified Mutation check",
    "dynx.guards": "compile count_hits evict inspect keyed pin profile reset would_recompile",
    "dynx.pgo": "AppliedProfile CacheKeys Profile Recorder StableClosureHash WarmStart cachediff record stable_closure_hash "
    "warm_start",
    "dynx.records": """
        AddressChange Alternative Attempt Backward BackwardCapture BackwardHook BackwardNode BecameDynamic BreakState
        CacheCause CacheDiff CacheEvent CacheKey CacheReport CaptureReport CaptureVerdict
        CauseChange CheckReport CodeLine Compile CompileUse
        CompiledGuards CostNode CudagraphReport CudagraphStats Diff DynamicSize DynamicSizes EagerTime Effect Entry
        Events Finding Fix FixReport FrameCost FrameEffects FrameMatch FrameProfile FrameState GaveUp GradError
        GraphBreak GraphCode GraphInput GraphPiece GraphPlan GraphRecorded GraphUse GuardCosts GuardInfo GuardNode
        GuardSetting IsaCheck KeySettings Leak LineCost Location Logged Mark Modified Mutation OrderError ParameterError
        PeakTensor PoolMemory ProfileChange ProfileData ProfileDiff ProfileMatches ProfileMiss PrunableSize Reason
        RecaptureReason Recompile Record Repeated RunDiff RunRecords RunTotal SavedGraph SavedPlan SavedReport
        SavedTensor Seen Shown Skip Skipped SourceProfile Specialized Staging StaleValue Symbol SymbolReport TorchWarning
        TraceState TracedCompile TracedGuard Trial TriedRule Trouble Unguarded UnguardedRead Verdict WhatIf
    """,
    "dynx.fix": "FixReport Limits Program Tolerance apply run",
    "dynx.report": """
        html perfetto post_mortem post_mortem_html processes record record_html terminal timeline timeline_html
    """,
    "dynx.saved": """
        Codec GradError PeakTensor Rule SavedGraph SavedGraphs SavedHooks SavedPlan SavedReport SavedTensor codecs
        grad_error hooks inlineable_hooks plan report rule
    """,
    "dynx.symbols": "InstalledScheme install report",
}
API = [
    "dynx",
    "dynx.autograd",
    "dynx.comptime",
    "dynx.cudagraphs",
    "dynx.effects",
    "dynx.errors",
    "dynx.fix",
    "dynx.guards",
    "dynx.pgo",
    "dynx.records",
    "dynx.saved",
    "dynx.symbols",
]  # what users import from, and find as attributes of dynx
IMPORTED = {"dynx.cudagraphs": {"close_all", "reset_stats"}}  # the package imports them for its own `reset`


@pytest.mark.parametrize("package", EXPORTED)
def test_exported_names_of_a_package_equal_the_pinned_list(package):
    module = importlib.import_module(package)
    assert list(module.__all__) == EXPORTED[package].split()
    assert module.__all__ == sorted(module.__all__)


@pytest.mark.parametrize("package", EXPORTED)
def test_every_exported_name_of_a_package_exists(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None, name


@pytest.mark.slow
def test_packages_are_attributes_of_dynx_and_import_no_torch():
    """Whoever types `dynx.` finds them; `import dynx` stays fast."""
    names = [package.removeprefix("dynx.") for package in API[1:]]
    assert set(names) <= set(dir(dynx))
    code = f"import sys, dynx; assert dynx.records and dynx.errors and 'torch' not in sys.modules; {names}"
    code += f"; assert all(getattr(dynx, name).__name__ == f'dynx.{{name}}' for name in {names})"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", API)
def test_every_public_name_of_a_package_is_exported(package):
    """A name without an underscore that is not in `__all__` looks public and is not."""
    module = importlib.import_module(package)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
        if str(getattr(value, "__module__", "")).partition(".")[0] == "dynx"
    }
    exported = set(module.__all__) | IMPORTED.get(package, set())
    assert public <= exported, public - exported


def test_every_record_class_is_exported_from_dynx_records():
    """Users annotate with records, so each can be imported from `dynx.records`."""
    records = set()
    for info in pkgutil.iter_modules(dynx.records.__path__, "dynx.records."):
        module = importlib.import_module(info.name)
        records |= {
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Record) and value.__module__ == info.name
        }
    assert records <= set(dynx.records.__all__), records - set(dynx.records.__all__)


def test_every_public_package_has_a_pinned_list_of_exported_names():
    """Every module `dynx.*` without an underscore is in the list, except `dynx.session`."""
    private = {"dynx.session"}  # users call `dynx.watch`
    modules = {f"dynx.{info.name}" for info in pkgutil.iter_modules(dynx.__path__) if not info.name.startswith("_")}
    assert modules - private == set(EXPORTED) - {"dynx"}
