"""Advice to users of a library whose code breaks the graph, or reads a guarded value that changes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynx.advice.facts.fixes import setting
from dynx.advice.rule import Advice, expected, one_of
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.recompile import Reason

_STATIC_CACHE = 'use_cache=False where nothing is generated; else a static cache: cache_implementation="static" or StaticCache'
_HOOKS = "call the uncompiled model once before the first compiled call: transformers installs its hooks in the first call"
_ACCELERATOR = "call accelerator methods outside the compiled function"
_METRICS = "update and compute metrics outside the compiled function"
_NETWORK = "compile the network, not training_step: self.log and the trainer then run outside the graph"
_SCHEDULER = "compile the model, and call the scheduler's step() outside the compiled function"

# by library, then by a regular expression to search in the files, functions and source line of a graph break; "" matches each
_OF_BREAKS: Mapping[str, Mapping[str, Advice]] = {
    "transformers": {
        r"moe|mixtral|Experts": one_of(
            'load the model with experts_implementation="batched_mm", which reads no sizes from the data'
        ),
        r"_mask_hidden_states|_compute_mask_indices|mask_time|spec_augment": one_of(
            "turn the time masking off in the configuration (mask_time_prob=0), or mask outside"
        ),
        r"rope_utils|rope_": one_of('use a rope_type that does not depend on the length, such as "default" or "linear"'),
        r"install_\w*hook|_hook_installation_lock": one_of(_HOOKS),
        r"generation|generate": one_of(
            'compile model.forward, not generate; or let generate compile it: cache_implementation="static"'
        ),
        r"cache_utils": one_of(_STATIC_CACHE),
        r"loss_utils|loss/|\blabels\b": one_of("compute the loss outside the compiled model: call it without labels"),
    },
    "accelerate": {
        r"optimizer|scheduler": one_of("call step() of the optimizer and the scheduler outside the compiled function"),
        r"": one_of(_ACCELERATOR),
    },
    "torchmetrics": {r"": one_of(_METRICS)},
    "lightning": {r"": one_of(_NETWORK)},
    "pytorch_lightning": {r"": one_of(_NETWORK)},
    "diffusers": {r"schedul": one_of(_SCHEDULER)},
    "torch_geometric": {
        r"utils/loop|self_loops": one_of(
            "add or remove self-loops before the call (layers take add_self_loops=False)",
            setting("capture_dynamic_output_shape_ops = True"),
        ),
        r"_scatter|scatter|to_dense|pool": one_of(
            "pass the sizes that it reads from the data: size= to global pooling, dim_size= to scatter, batch_size= and "
            "max_num_nodes= to to_dense_batch",
            setting("capture_scalar_outputs = True"),
        ),
    },
    "scipy": {r"": one_of("call it outside the compiled function, or wrap it as a torch.library.custom_op")},
    "torchvision": {
        r"ops/boxes|_box_convert|batched_nms": one_of(
            "select boxes outside the compiled function: their number depends on the data"
        ),
    },
}

_DISPATCH = "functools fills this cache in the first call: call the uncompiled function once before, or use isinstance and if"

# by library, then by a regular expression to search in the source of a changed value and the name of the function that reads it
_OF_VALUES: Mapping[str, Mapping[str, Advice]] = {
    "transformers": {
        r"max_cache_len": one_of(
            "use one size for all static caches: past_key_values=StaticCache(config=..., max_cache_len=...), or one max_length"
        ),
        r"layers\[\d+\]\.is_initialized": one_of(
            'use a static cache (cache_implementation="static", StaticCache) that is filled before the first compiled call: '
            "cache.early_initialization(...), or one call of the uncompiled model; "
            "or use_cache=False where nothing is generated"
        ),
        r"install_\w*hook": one_of(_HOOKS),
        r"past_key_value|cache|layers\[\d+\]\.(?:keys|values|is_initialized|cumulative_length)": one_of(_STATIC_CACHE),
        r"gradient_checkpointing": one_of("switch gradient checkpointing before the first call, and leave it"),
    },
    "peft": {
        r"active_adapter": expected(
            "one recompile per adapter is expected; to avoid it, peft's prepare_model_for_compiled_hotswap before "
            "torch.compile, and hotswap_adapter instead of set_adapter"
        ),
        r"merged_adapters|disable": expected(
            "one recompile is expected: merging or disabling adapters changes the model; "
            "to avoid it, do so before the first call"
        ),
    },
    "accelerate": {r"gradient_state|sync_gradients|step": one_of(_ACCELERATOR)},
    "torchmetrics": {r"": one_of(_METRICS)},
    "lightning": {r"": one_of(_NETWORK)},
    "pytorch_lightning": {r"": one_of(_NETWORK)},
    "diffusers": {r"timestep|step_index|sigmas|schedul": one_of(_SCHEDULER)},
}

_OF_SCHEDULERS = re.compile(r"last_epoch|_step_count|_last_lr|lr_scheduler")


def advice_on_break(graph_break: GraphBreak) -> Advice | None:
    """Return the advice for a graph break in the code of a library; None if dynx has no advice for this code."""
    location = graph_break.location
    lines = (f"{line.file} {line.function}" for line in graph_break.chain[-4:])
    where = " ".join((location.file, location.function, *lines, graph_break.code_of_library))
    options = _OF_BREAKS.get(location.library or "", {})
    return next((advice for pattern, advice in options.items() if re.search(pattern, where)), None)


def advice_on_value(reason: Reason) -> Advice | None:
    """Return the advice for a changed value that a library or torch's LR scheduler holds; None if unknown."""
    if _OF_SCHEDULERS.search(reason.source) and reason.holder != "argument":
        return one_of("call the scheduler's step() outside the compiled function")
    if re.search(r"\bdispatch(?:_cache\.data|\.__closure__)", reason.source):
        return one_of(_DISPATCH)
    where = f"{reason.source} {reason.location.function if reason.location is not None else ''}"
    options = _OF_VALUES.get(library_of(reason) or "", {})
    return next((advice for pattern, advice in options.items() if re.search(pattern, where)), None)


def advice_on_failure(location: Location) -> Advice | None:
    """Return the advice for a library in which a compilation failed; None if dynx has no advice on the library as a whole."""
    return _OF_BREAKS.get(location.library or "", {}).get("")


def library_of(reason: Reason) -> str | None:
    """Return the library whose code reads the changed value; None if it is the user's code."""
    return reason.location.library if reason.location is not None else None
