"""Frozen dataclasses for everything that dynx observes. No module of this package imports torch."""

from __future__ import annotations

from dynx.records.backward import (
    BackwardCapture,
    BackwardHook,
    BackwardNode,
    CaptureReport,
    CaptureVerdict,
    OrderError,
    RecaptureReason,
)
from dynx.records.cache import CacheReport, Entry, GuardInfo, GuardNode, Verdict
from dynx.records.cache_key import CacheCause, CacheDiff, CacheKey, KeySettings
from dynx.records.check import CheckReport, Diff, Leak
from dynx.records.compile import Attempt, Backward, Compile, CompileUse, GaveUp, Repeated, Skipped
from dynx.records.comptime import BreakState, FrameState, LineCost, Logged, TracedCompile, TracedGuard, TraceState
from dynx.records.cudagraphs import (
    AddressChange,
    CudagraphReport,
    CudagraphStats,
    GraphInput,
    GraphPiece,
    GraphPlan,
    GraphRecorded,
    GraphUse,
    PoolMemory,
    Skip,
    Staging,
)
from dynx.records.detail import CompiledGuards, GraphCode
from dynx.records.eager_time import EagerTime
from dynx.records.effects import Effect, FrameEffects, Modified, Mutation
from dynx.records.finding import Alternative, Finding
from dynx.records.fix import Fix, Mark
from dynx.records.fix_report import FixReport
from dynx.records.graph_break import GraphBreak
from dynx.records.guard_cost import CostNode, FrameCost, GuardCosts, GuardSetting
from dynx.records.isa_check import IsaCheck
from dynx.records.location import CodeLine, Location
from dynx.records.observed import BecameDynamic, CacheEvent, ProfileMiss, Specialized, TorchWarning, Trouble
from dynx.records.profile import (
    DynamicSize,
    DynamicSizes,
    FrameMatch,
    FrameProfile,
    ProfileChange,
    ProfileData,
    ProfileDiff,
    ProfileMatches,
    PrunableSize,
    Seen,
    SourceProfile,
)
from dynx.records.recompile import Reason, Recompile
from dynx.records.record import Record
from dynx.records.run_diff import CauseChange, RunDiff, RunTotal
from dynx.records.run_records import RunRecords
from dynx.records.saved import PeakTensor, SavedGraph, SavedTensor
from dynx.records.saved_report import GradError, ParameterError, SavedPlan, SavedReport, TriedRule
from dynx.records.shown import Shown
from dynx.records.symbols import Symbol, SymbolReport
from dynx.records.trial import Events, Trial
from dynx.records.unguarded import StaleValue, Unguarded, UnguardedRead
from dynx.records.what_if import WhatIf

__all__ = [
    "AddressChange",
    "Alternative",
    "Attempt",
    "Backward",
    "BackwardCapture",
    "BackwardHook",
    "BackwardNode",
    "BecameDynamic",
    "BreakState",
    "CacheCause",
    "CacheDiff",
    "CacheEvent",
    "CacheKey",
    "CacheReport",
    "CaptureReport",
    "CaptureVerdict",
    "CauseChange",
    "CheckReport",
    "CodeLine",
    "Compile",
    "CompileUse",
    "CompiledGuards",
    "CostNode",
    "CudagraphReport",
    "CudagraphStats",
    "Diff",
    "DynamicSize",
    "DynamicSizes",
    "EagerTime",
    "Effect",
    "Entry",
    "Events",
    "Finding",
    "Fix",
    "FixReport",
    "FrameCost",
    "FrameEffects",
    "FrameMatch",
    "FrameProfile",
    "FrameState",
    "GaveUp",
    "GradError",
    "GraphBreak",
    "GraphCode",
    "GraphInput",
    "GraphPiece",
    "GraphPlan",
    "GraphRecorded",
    "GraphUse",
    "GuardCosts",
    "GuardInfo",
    "GuardNode",
    "GuardSetting",
    "IsaCheck",
    "KeySettings",
    "Leak",
    "LineCost",
    "Location",
    "Logged",
    "Mark",
    "Modified",
    "Mutation",
    "OrderError",
    "ParameterError",
    "PeakTensor",
    "PoolMemory",
    "ProfileChange",
    "ProfileData",
    "ProfileDiff",
    "ProfileMatches",
    "ProfileMiss",
    "PrunableSize",
    "Reason",
    "RecaptureReason",
    "Recompile",
    "Record",
    "Repeated",
    "RunDiff",
    "RunRecords",
    "RunTotal",
    "SavedGraph",
    "SavedPlan",
    "SavedReport",
    "SavedTensor",
    "Seen",
    "Shown",
    "Skip",
    "Skipped",
    "SourceProfile",
    "Specialized",
    "Staging",
    "StaleValue",
    "Symbol",
    "SymbolReport",
    "TorchWarning",
    "TraceState",
    "TracedCompile",
    "TracedGuard",
    "Trial",
    "TriedRule",
    "Trouble",
    "Unguarded",
    "UnguardedRead",
    "Verdict",
    "WhatIf",
]
