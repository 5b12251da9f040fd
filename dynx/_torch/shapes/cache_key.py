"""Read, as text and hashes, the values from which torch computes the key of a graph in its FX graph and AOTAutograd caches.

Torch: `FxGraphCachePickler.dumps(details)`, whose bytes are hashed to the key, and the attributes of `FxGraphHashDetails` and
`AOTAutogradCacheDetails`, alike in 2.11, 2.13 and 2.15 but for some attributes. Nothing is unpickled to read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, NamedTuple

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.capabilities import hook_point, require
from dynx._torch.shapes.symbol_facts import RawSymbol, shape_env_in, symbols_in
from dynx._torch.tracing.graph_code import RawCodeLine, code_lines
from dynx._torch.tracing.translator import trace_id

_MAX_TEXT = 300  # characters of a part; a longer text is compared by its hash
_MAX_ITEMS = 200  # items of a list; a longer list is compared by its hash
# what AOTAutogradCachePickler._reduce_aot_config puts into the key
_AOT_CONFIG = (
    *("num_params_buffers", "keep_inference_input_mutations", "is_export", "no_tangents"),
    *("dynamic_shapes", "static_input_indices", "enable_log", "pre_dispatch"),
)
_CONFIGS = {  # attributes that hold all settings of a configuration module
    "inductor_config": "torch._inductor.config",
    "inductor_config_comms": "torch._inductor.config_comms",
    "autograd_config": "torch._functorch.config",
}
_USUAL = ("None", "False", "0")  # values in the metadata of a tensor that are left out

Part = tuple[str, str]  # name and text; the text ends with a hash if it does not show the whole value


class RawKey(NamedTuple):
    """The key of one graph in AOTAutograd's or inductor's cache, and the values from which torch computed it."""

    cache: Literal["fx_graph", "aot_autograd"]
    digest: str  # hash of the pickled bytes from which torch computes the key
    compile_id: str
    is_backward: bool
    directory: str  # of the caches
    parts: dict[str, str]
    settings: dict[str, str]  # torch's configuration, which most keys of a process share
    graph: list[RawCodeLine]
    symbols: list[RawSymbol]


def watch_keys(note: Callable[[RawKey], None], report: hooks.OnError) -> Handle:
    """Call `note` with each key that torch computes for its FX graph or AOTAutograd cache, until the handle is removed.

    `report` gets the exceptions that `note` raises, and those that occur when the key is read.
    """
    require("cache_key", "key_details", "tensor_metadata", "cache_directory", "fake_tensor")

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After | None:
        from torch._inductor.codecache import FxGraphHashDetails

        pickler, details = args[0], args[1] if len(args) > 1 else kwargs["obj"]
        if not isinstance(details, FxGraphHashDetails):
            return None  # one part of a key, which torch hashes for its log

        def after(result: Any, raised: BaseException | None) -> None:
            if raised is None:
                note(_read(pickler, details, result))

        return after

    return hooks.subscribe(hook_point("cache_key"), before, on_error=report)


def _read(pickler: Any, details: Any, serialized: bytes) -> RawKey:
    from torch._inductor.runtime.runtime_utils import cache_dir

    aot_config = getattr(details, "aot_config", None)
    shape_env = shape_env_in(details.example_inputs)
    reader = _PartReader(pickler.dumps)
    return RawKey(
        "fx_graph" if aot_config is None else "aot_autograd",
        _hash(serialized),
        trace_id().compile_id,
        bool(details.fx_kwargs.get("is_backward")),
        cache_dir(),
        dict([*reader.inputs(details.example_inputs, aot_config), *reader.aot_config(aot_config), *reader.others(details)]),
        dict(reader.settings(details)),
        list(_code(details.gm)),
        [] if shape_env is None else list(symbols_in(shape_env)),
    )


class _PartReader:
    """A converter of the values in one cache key to text; a value whose repr varies between processes is shown as a hash."""

    def __init__(self, dumps: Callable[[Any], bytes]) -> None:
        self._dumps = dumps

    def inputs(self, inputs: list[Any], aot_config: Any) -> Iterator[Part]:
        sources = getattr(aot_config, "aot_autograd_arg_pos_to_source", None) or []
        names = [guard_source(source) if source is not None else "" for source in sources]
        names += [""] * (len(inputs) - len(names))
        for number, (name, value) in enumerate(zip(names, inputs, strict=False)):
            yield from self._parts(name or f"example_inputs[{number}]", value)
        yield "order of inputs", _cut(", ".join(names))
        yield "number of inputs", str(len(inputs))

    def aot_config(self, config: Any) -> Iterator[Part]:
        for name in _AOT_CONFIG:
            if hasattr(config, name):
                yield from self._parts(f"aot_config.{name}", getattr(config, name))

    def others(self, details: Any) -> Iterator[Part]:
        from torch import version

        for name, value in vars(details).items():
            if name == "torch_version":
                digest = _hash(value if isinstance(value, bytes) else self._dumps(value))
                yield name, f"{version.__version__} ({version.git_version[:8]}), hash {digest}"
            elif name not in ("aot_config", "example_inputs", *_CONFIGS):
                yield from self._parts(name, value)

    def settings(self, details: Any) -> Iterator[Part]:
        for attribute, module in _CONFIGS.items():
            value = getattr(details, attribute, None)
            if isinstance(value, bytes):
                value = _live_config(module)
            if isinstance(value, Mapping):
                for name, setting in value.items():
                    yield f"{module}.{name}", _cut(_setting_text(setting))

    def _parts(self, name: str, value: Any) -> Iterator[Part]:
        import torch

        if _is_plain(value):
            yield name, _cut(repr(value))
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            yield name, str(value)
        elif isinstance(value, torch.Tensor):
            yield from self._tensor(name, value)
        elif isinstance(value, Mapping) and value:
            for key, item in value.items():
                yield from self._parts(f"{name}[{key}]", item)
        elif isinstance(value, (list, tuple)) and len(value) <= _MAX_ITEMS:
            for number, item in enumerate(value):
                yield from self._parts(f"{name}[{number}]", item)
        elif is_dataclass(value) and not isinstance(value, type):
            for field in fields(value):
                yield from self._parts(f"{name}.{field.name}", getattr(value, field.name))
        else:
            yield name, self._hashed(value)

    def _tensor(self, name: str, value: Any) -> Iterator[Part]:
        import torch
        from torch._inductor.codecache import extract_tensor_metadata_for_cache_key
        from torch._subclasses.fake_tensor import FakeTensor

        if type(value) not in (torch.Tensor, torch.nn.Parameter) and not isinstance(value, FakeTensor):
            yield name, self._hashed(value)
            return
        metadata = extract_tensor_metadata_for_cache_key(value)
        facts = {field.name: _fact_text(getattr(metadata, field.name)) for field in fields(metadata)}
        yield name, "; ".join(f"{fact}={text}" for fact, text in facts.items() if text not in _USUAL)

    def _hashed(self, value: Any) -> str:
        kind = type(value).__qualname__
        try:
            return f"{kind}, hash {_hash(self._dumps(value))}"
        except Exception:  # noqa: BLE001 - it cannot be pickled separately, only as a part of the whole key
            return kind


def _fact_text(fact: Any) -> str:
    return f"[{', '.join(map(str, fact))}]" if isinstance(fact, (list, tuple)) else str(fact)  # sizes may be symbolic


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… hash {_hash(text.encode())}"


def _is_plain(value: Any) -> bool:
    """Return whether the `repr` of a value is the same in every process and shows the whole value."""
    import torch

    if isinstance(value, (list, tuple)):
        return len(value) <= _MAX_ITEMS and all(map(_is_plain, value))
    if isinstance(value, dict):
        return not value
    kinds = (torch.dtype, torch.device, torch.layout, torch.memory_format)
    return value is None or type(value) in (str, int, float, bool) or isinstance(value, kinds)


def _setting_text(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_setting_text(item)}' for key, item in value.items())}}}"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return repr(value) if _is_plain(value) else type(value).__qualname__


def _live_config(module: str) -> dict[str, Any]:
    """Return the settings of a configuration module, such as `torch._inductor.config`, that are part of cache keys."""
    from importlib import import_module

    config: Any = import_module(module)
    ignored = {*getattr(config, "_save_config_ignore", ()), "_save_config_ignore"}
    return {name: value for name, value in config.get_config_copy().items() if name not in ignored}


def _code(gm: Any) -> Iterator[RawCodeLine]:
    """Yield the code of a graph and of the graphs nested in it, such as the branches of `torch.cond`."""
    import torch

    if gm is None:
        return
    for name, module in gm.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            if name:
                yield RawCodeLine(f"{name}:", ())
            yield from code_lines(module.graph)


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
