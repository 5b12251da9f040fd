"""Explain why one graph has different keys in torch's compile caches on disk in two runs.

A key has named parts, such as the dtype of an input or a setting of torch. They are compared one by one; a difference that
follows from another difference is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dynx.advice.facts.graph_change import flag_changed, graph_change
from dynx.advice.facts.names import spoken
from dynx.records import CodeLine, Location
from dynx.records.cache_key import CacheCause, CacheKey, CauseKind
from dynx.records.observed import TORCHS_PROFILE

_WORD = re.compile(r"\w+")
_SIZE = re.compile(r"\.(size|stride)\(\)\[(\d+)\]")
_INPUT = re.compile(r"[LG]\[|example_inputs\[")  # beginning of the names of inputs
_SYSTEM = ("torch_version", "system_info")
_ABSENT, _OFF = "absent", "off"
_MAX_TEXT, _MAX_LINES = 160, 6

_LONG_NAME = re.compile(r"[a-z]+\d{6,}")  # a symbol of dynx.symbols.install; torch's own names have two or three digits
_SCHEME = "call dynx.symbols.install() with the same scheme in every process that shares the caches"

_UNBACKED = re.compile(r"u\d+")
_PLACEHOLDER = re.compile(r"\bp_(\d+)\b")  # torch 2.13 and newer: an input that is not a size, by its index
_DETERMINISTIC = "torch._inductor.config.deterministic"

_STATE = {  # part of the key: the setting as the user knows it, which may have several parts
    "grad_enabled": "torch.is_grad_enabled()",
    "autocast_state": "torch.autocast",
    "disable_amp": "torch.autocast",
    "deterministic_algorithms": "torch.use_deterministic_algorithms",
    "deterministic_algorithms_settings": "torch.use_deterministic_algorithms",
    "default_dtype": "torch.get_default_dtype()",
    "cpp_runtime_thread_count": "torch.get_num_threads()",
    "cuda_matmul_settings": "torch.backends.cuda.matmul",
    "cache_key_tag": "torch.compiler.config.cache_key_tag",
    "saved_tensors_hooks_fx_wrap_cache_hashes": "cache_hash of the saved-tensor hooks",
    "sac_context_fn_hashes": "cache hash of checkpoint's context_fn",
    "default_cuda_device_index": "torch.cuda.current_device()",
}
_OF_GRAPH = ("gm", "order of inputs", "number of inputs", "aot_config.num_params_buffers")
_ADVICE: Mapping[CauseKind, str] = {
    "system": "keep one cache directory for each build of torch, device and driver",
    "setting": "set it to the same value in both runs",
    "state": "make it the same in both runs",
    "input": "compile this input in the first run too, or pass it as in the first run",
    "symbol name": "call dynx.symbols.install() in both runs, before the first compilation",
    "runtime assert": "a trace asserts what is not known of a size: look for torch._check, and sizes marked in one run only",
    "graph": "the function was traced to another graph: look at its source, constants and flags such as train() at this line",
}
_SAME_TEXT = (
    "the text of the function is the same in both runs: look at its constants, at flags such as train(), and at what it calls"
)
_ONE_PROFILE = "begin both runs with one profile: dynx run --pgo profile.json, or pgo.warm_start()"
_OF_TORCH = (
    "use dynx run --pgo or pgo.warm_start() instead of TORCH_COMPILE_JOB_ID: their profile keeps with which sizes graphs were "
    "compiled"
)
_ONCE_MORE = (
    "both runs began with a profile, which did not have this graph: save that of the second run too, as dynx run --pgo and "
    "pgo.warm_start() do, and run it once more"
)


def causes_of(
    before: CacheKey, after: CacheKey, settings_before: Mapping[str, str] | None, settings_after: Mapping[str, str] | None
) -> Iterator[CacheCause]:
    """Yield why one graph has different keys in two runs; pass None for settings of torch that a run file does not have."""
    return _KeyPair(before, after, settings_before, settings_after).causes()


@dataclass
class _KeyPair:
    before: CacheKey
    after: CacheKey
    settings_before: Mapping[str, str] | None
    settings_after: Mapping[str, str] | None
    changed: dict[str, tuple[str, str]] = field(init=False)  # parts of the key that differ

    def __post_init__(self) -> None:
        self.changed = _changes(self.before.parts, self.after.parts)
        first, second = _used(self.before), _used(self.after)
        self._names = {source: (name, second[source]) for source, name in first.items() if second.get(source, name) != name}
        self._renamed = {after: before for before, after in self._names.values()}
        self._dynamic = {source: name for source, name in first.items() if source not in second}
        self._static = {source: name for source, name in second.items() if source not in first}
        for name, (before, after) in self.changed.items():  # mark_unbacked's sizes are inputs only
            if _INPUT.match(name) and _ABSENT in (before, after) and _UNBACKED.fullmatch(before if after == _ABSENT else after):
                (self._dynamic if after == _ABSENT else self._static)[name] = name
        self._has_other_shapes = any(
            _ABSENT not in texts
            and _facts_in(texts[0]).get("shape") != self._in_first_names(_facts_in(texts[1]).get("shape", ""))
            for texts in self._changed_inputs().values()
            if all("shape=" in text for text in texts)
        )

    def causes(self) -> Iterator[CacheCause]:
        found = [*self._system(), *self._settings(), *self._state(), *self._sizes(), *self._symbols()]
        inputs = list(self._inputs())
        graph = list(self._graph(has_cause=bool(found) or (bool(inputs) and not self._has_other_inputs)))
        if graph and self._has_other_inputs:
            inputs = []  # they follow from a flag: under train(), the statistics of batch norm are inputs
        found += inputs
        if self._has_other_shapes and self._has_same_text:
            graph = []  # follows from a loop over a size, or a branch on it
        if not found and (marks := list(self._marks())):
            found, graph = marks, [cause for cause in graph if cause.kind == "graph" and not self._has_same_text]
        yield from found
        yield from graph
        if not found and not graph:
            advice = "compare both with TORCH_LOGS=+torch._inductor.codecache, and report it to dynx"
            yield self._cause("state", "a part of the key that dynx does not compare", "", "", advice=advice)

    def _cause(
        self,
        kind: CauseKind,
        name: str,
        before: str,
        after: str,
        *,
        location: Location | None = None,
        advice: str | None = None,
    ) -> CacheCause:
        place = location or self.after.location
        advice = advice or _ADVICE.get(kind) or self._profile_advice()
        return CacheCause(kind, name, _shortened(before), _shortened(after), place, advice)

    def _profile_advice(self) -> str:
        """Return advice on making the same sizes dynamic in both runs. It depends on the PGO profiles that the runs loaded."""
        before, after = self.before.profiles, self.after.profiles
        if TORCHS_PROFILE in (*before, *after):
            return _OF_TORCH
        return _ONCE_MORE if before and after else _ONE_PROFILE

    def _system(self) -> Iterator[CacheCause]:
        for name, texts in self.changed.items():
            if name.startswith(_SYSTEM):
                yield self._cause("system", name, *texts)

    def _settings(self) -> Iterator[CacheCause]:
        before, after = self.settings_before, self.settings_after
        if before is None or after is None:
            if self.before.settings != self.after.settings:
                first, second = ("known" if one is not None else "missing in the run file" for one in (before, after))
                yield self._cause("setting", "torch's configuration", first, second, advice="record the run again")
            return
        for name, texts in _changes(before, after).items():
            if name != _DETERMINISTIC or "deterministic_algorithms" not in self.changed:  # torch sets both
                yield self._cause("setting", name, *texts)

    def _state(self) -> Iterator[CacheCause]:
        others = (name for name in self.changed if not _is_of_graph(name) and not name.startswith(_SYSTEM))
        for title in dict.fromkeys(_STATE.get(name.partition("[")[0], name) for name in others):
            if title.startswith("fx_kwargs["):
                name = f"option {title.removeprefix('fx_kwargs[').replace(']', '').removesuffix('.value')}"
                yield self._cause("setting", name, *self.changed[title])
            else:
                yield self._cause("state", title, _state_text(title, self.before), _state_text(title, self.after))

    def _sizes(self) -> Iterator[CacheCause]:
        yield from (self._cause("dynamic size", _size(source), "dynamic", "static") for source in self._dynamic)
        yield from (self._cause("dynamic size", _size(source), "static", "dynamic") for source in self._static)

    def _marks(self) -> Iterator[CacheCause]:
        """Yield a cause for each size that was static in one run, but dynamic in the other run until code specialized it."""
        for first, second in ((self.before, self.after), (self.after, self.before)):
            for source, value in first.fixed.items():
                if source not in second.fixed and source not in second.symbols.values():
                    texts = f"dynamic, fixed to {value}", "static"
                    yield self._cause("dynamic size", _size(source), *(texts if first is self.before else texts[::-1]))

    def _symbols(self) -> Iterator[CacheCause]:
        for source, names in () if self._has_sizes else self._names.items():
            is_scheme = any(map(_LONG_NAME.fullmatch, names)) and not all(map(_LONG_NAME.fullmatch, names))
            rule, advice = ("DX406", _SCHEME) if is_scheme else ("DX403", _ADVICE["symbol name"])
            yield replace(self._cause("symbol name", f"name of {_size(source)}", *names, advice=advice), rule=rule)

    def _inputs(self) -> Iterator[CacheCause]:
        """Yield a cause for each difference between inputs; inputs that differ in the same way share one cause."""
        alike: dict[tuple[str, str, str], list[str]] = {}
        for name, (before, after) in self._changed_inputs().items():
            if self._has_sizes and _ABSENT in (before, after):
                continue
            for fact, texts in self._facts(before, after):
                alike.setdefault((fact, *texts), []).append(name)
        for (fact, before, after), names in alike.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield self._cause("input", f"{_size(names[0])}{'.' if fact else ''}{fact}{more}", before, after)

    def _changed_inputs(self) -> dict[str, tuple[str, str]]:
        return {name: texts for name, texts in self.changed.items() if _INPUT.match(name)}

    def _facts(self, before: str, after: str) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield each changed property of an input, with both values. Omit consequences, such as strides if shapes differ."""
        if "=" not in before or "=" not in after:
            if before != self._in_first_names(after):
                yield "", (_tensor(before), _tensor(after))
            return
        facts = {
            name: texts
            for name, texts in _changes(_facts_in(before), _facts_in(after)).items()
            if texts[0] != self._in_first_names(texts[1])
        }
        if self._has_sizes:
            facts = {name: texts for name, texts in facts.items() if name in ("dtype", "device", "requires_grad")}
        if "shape" in facts:
            facts.pop("stride", None)
        if "stride" in facts or "shape" in facts:
            facts.pop("memory_format", None)
        yield from facts.items()

    def _graph(self, *, has_cause: bool) -> Iterator[CacheCause]:
        if self._has_sizes:
            return
        before, after = _with_sources(self.before), _with_sources(self.after, self._in_first_names)
        if self._has_other_inputs and not flag_changed(before, after):
            return
        change = graph_change(before, after, has_other_names=bool(self._renamed), ignore_literals=has_cause)
        if change is not None:
            kind: CauseKind = "runtime assert" if change.is_assertion else "graph"
            advice = _SAME_TEXT if kind == "graph" and self._has_same_text else None
            yield self._cause(kind, change.name, change.before, change.after, location=change.location, advice=advice)
        elif self._renamed or has_cause:
            return
        elif "order of inputs" in self.changed:
            yield self._cause("input", "order of inputs", *self.changed["order of inputs"])
        elif "gm" in self.changed:
            yield self._cause("graph", "constants of the graph", *self.changed["gm"])

    @property
    def _has_same_text(self) -> bool:
        """Whether the source text of the function is known to be the same in both runs."""
        return self.before.source is not None and self.before.source == self.after.source

    @property
    def _has_other_inputs(self) -> bool:
        """Whether one of the two graphs has an input that the other lacks."""
        return any(_ABSENT in texts for texts in self._changed_inputs().values())

    @property
    def _has_sizes(self) -> bool:
        """Whether some size is dynamic in only one of the two runs: most other differences follow from that."""
        return bool(self._dynamic or self._static)

    def _in_first_names(self, text: str) -> str:
        return _WORD.sub(lambda match: self._renamed.get(match[0], match[0]), text) if self._renamed else text


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = dict.fromkeys((*before, *after))
    texts = {name: (before.get(name, _ABSENT), after.get(name, _ABSENT)) for name in names}
    return {name: pair for name, pair in texts.items() if pair[0] != pair[1]}


def _facts_in(text: str) -> dict[str, str]:
    """Return the properties of a tensor by name, from a part of a key such as `dtype=torch.float32; shape=[4, 8]`."""
    facts = dict(fact.split("=", 1) for fact in text.split("; ") if "=" in fact)
    return {"requires_grad": "False", "storage_offset": "0", **facts}


def _used(key: CacheKey) -> dict[str, str]:
    """Return the symbols in a key's inputs and graph, as a dict from source to name: `{"L['x'].size()[0]": "s77"}`."""
    words = {word for text in (*key.parts.values(), *(line.text for line in key.graph)) for word in _WORD.findall(text)}
    return {source: name for name, source in key.symbols.items() if name in words}


def _with_sources(key: CacheKey, renamed: Callable[[str], str] = str) -> list[CodeLine]:
    """Return the graph code stored in a cache key. Inputs are named by their sources, so that their order does not matter.

    `renamed` replaces the names of symbols in a line of code.
    """
    sources = [_size(name) for name, text in key.parts.items() if _INPUT.match(name) and not _SIZE.search(name)]

    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return sources[number] if number < len(sources) else match[0]

    return [replace(line, text=_PLACEHOLDER.sub(named, renamed(line.text))) for line in key.graph]


def _is_of_graph(name: str) -> bool:
    return name in _OF_GRAPH or name.startswith("aot_config.static_input_indices") or _INPUT.match(name) is not None


def _state_text(title: str, key: CacheKey) -> str:
    """Return torch's setting `title` as text, joined from all parts of a key that store it: "cpu: torch.bfloat16"."""
    texts = []
    for name, text in key.parts.items():
        part, _, detail = name.partition("[")
        if name == title or _STATE.get(part) == title:
            text = _enabled(text) if title == "torch.autocast" else text
            texts.append(f"{detail.removesuffix(']')}: {text}" if detail and text != _OFF else text)
    return ", ".join(dict.fromkeys(text for text in texts if text != _OFF)) or _OFF


def _enabled(autocast: str) -> str:
    """Return the dtype of autocast for one device type, "on" if the dtype is unknown, or "off".

    `autocast` is a part of the key: `(True, torch.bfloat16)` in torch 2.15, `True` in torch 2.11.
    """
    state, _, dtype = autocast.strip("()").partition(", ")
    return {"{}": _OFF, "False": _OFF, "True": dtype or "on"}.get(state, autocast)


def _tensor(text: str) -> str:
    """Return dtype and shape of an input, `torch.float32 [4]`, from its part of a key, `dtype=torch.float32; shape=[4]; …`."""
    facts = _facts_in(text)
    return f"{facts['dtype']} {facts['shape']}" if "dtype" in facts and "shape" in facts else text


def _size(source: str) -> str:
    return _SIZE.sub(r".\1(\2)", spoken(source))


def _shortened(text: str) -> str:
    lines = [line if len(line) <= _MAX_TEXT else line[:_MAX_TEXT] + "…" for line in text.splitlines()]
    return "\n".join(lines if len(lines) <= _MAX_LINES else [*lines[:_MAX_LINES], f"… and {len(lines) - _MAX_LINES} more"])
