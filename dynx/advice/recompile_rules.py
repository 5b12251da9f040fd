"""Advice rules DX1xx: causes of recompiles, and how to avoid them."""

from __future__ import annotations

import re
from collections.abc import Callable

from dynx.advice import libraries
from dynx.advice.breaks.rules import rule_of
from dynx.advice.names import ITEM, spoken
from dynx.advice.rule import Cause, RecompileRule
from dynx.advice.sizes import LOOP, size_advice
from dynx.records.observed import Specialized
from dynx.records.recompile import GuardKind, Reason

_NUMBER = re.compile(r"-?\d")
_FLOAT = re.compile(r"-?\d+\.\d|-?\d+(?:\.\d+)?e-?\d|-?inf$")
_INT = re.compile(r"-?\d+$")
_CONTAINER: tuple[GuardKind, ...] = ("length", "keys")
_AUTOGRAD_KEYS = re.compile(r"\b(?:ADInplaceOrView|Autograd\w*)(?:, )?")


def _kind(*kinds: str, holder: str | None = None) -> Callable[[Reason], bool]:
    return lambda reason: reason.kind in kinds and (holder is None or reason.holder == holder)


def is_grad_mode(reason: Reason) -> bool:
    """Return whether grad mode or inference mode differs, or a tensor was created under inference mode."""
    if reason.kind == "global_state":
        return "grad_mode" in reason.source.split()
    # an inference tensor has the dispatch keys of a normal tensor without those of autograd
    keys = [_AUTOGRAD_KEYS.sub("", value or "").replace(", )", ")") for value in (reason.expected, reason.got)]
    return reason.kind == "tensor" and "dispatch key" in reason.text and keys[0] == keys[1]


def _module_int(reason: Reason) -> bool:
    return reason.kind == "value" and reason.holder == "module" and bool(_INT.match(reason.expected or ""))


def _is_size(reason: Reason) -> bool:
    return reason.kind in ("size", "shape") and ".size()" in reason.source


def _requires_grad_advice(cause: Cause) -> str:
    source = cause.first.source
    if "_parameters[" in source:
        return (
            "one recompile per setting is expected; to avoid it, set requires_grad once, before the first call, "
            "and choose in the optimizer what to train"
        )
    return f"one recompile per setting is expected; to avoid it, {spoken(source)}.detach() where no gradient is needed"


def _container_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.holder == "optimizer":
        return "one recompile is expected: the first step creates the optimizer's state; to avoid it, call step() uncompiled"
    source = spoken(reason.source)
    if source.endswith("._modules"):
        return f"add all modules to {source.removesuffix('._modules')} before the first call; one recompile per set is expected"
    calls = cause.called_from.library if cause.called_from is not None else None
    if reason.kind == "keys" and reason.holder == "argument" and calls is not None:
        return f"one recompile per set of arguments is expected: {calls} makes the call, with other keys in {source}"
    if reason.kind == "keys" and reason.holder == "argument":
        return f"pass the same keys in {source} on every call, with a default value where there is none"
    library = libraries.library_of(reason)
    if library is not None and reason.holder != "argument":
        return (
            f"one recompile is expected: {library} changes {source}; to avoid it, do what changes it before the first compiled "
            "call, such as by one call of the uncompiled function"
        )
    if reason.kind == "keys":
        return f"fill {source} with all its keys before the first call, such as in __init__"
    if reason.holder == "argument":
        return f"pass {source} as one tensor, padded or with mark_dynamic(it, 0)"
    if reason.expected == "0" and len(cause.recompiles) == 1:
        return f"fill {source} before the first call, such as by one call of the uncompiled function; or expect one recompile"
    return f"allocate {source} at its full length before the first call, or keep the data in one tensor; or change it outside"


def is_counted(reason: Reason) -> bool:
    """Return whether the compiled function itself changes the number: `Model.calls += 1`."""
    name = re.escape(spoken(reason.source).rpartition(".")[2])
    return bool(re.search(rf"\b{name}\s*[-+*/]?=(?!=)", reason.code))


def _value_advice(cause: Cause) -> str:
    reason = cause.first
    library = libraries.library_of(reason)
    if reason.kind == "shape" and library is not None:
        return f"one recompile is expected: the code of {library} that uses this number is valid for a range of values"
    if reason.kind == "shape":
        return "one recompile per side of the branch is expected; to avoid it, branch outside the compiled function"
    if reason.holder != "argument" and _NUMBER.match(reason.expected or "") and is_counted(reason):
        return f"make {spoken(reason.source)} a tensor, updated in place with add_(1), or count outside the compiled function"
    source = spoken(reason.source)
    if source.endswith(ITEM):
        return f"index with {source.removesuffix(ITEM)}.view(1): a tensor without dims becomes a Python number there"
    if _NUMBER.match(reason.expected or ""):
        if cause.fixed is not None:  # torch made it dynamic, but the code needed its value
            return f"this line needs the exact value of {source}: {_needed(cause.fixed)}"
        if not _NUMBER.match(reason.got or "0"):
            return f"pass {source} as the same type on every call: as a tensor, or as a Python number"
        if "." in (reason.got or "") and _INT.match(reason.expected or ""):
            return f"pass {source} as a float on every call, or as a tensor"
        if cause.after is not None and is_result(cause):
            rule = rule_of(cause.after)
            return f"remove the graph break: {rule.advice(cause.after)}" if rule is not None else "remove the graph break"
        if len(cause.recompiles) > 1:
            return (
                f"pass {source} as a tensor, and select with torch.where instead of if; or decide outside the compiled function"
            )
        if {"0", "1"} & {reason.expected, reason.got}:
            alternative = "0 and 1 always compile on their own: one recompile is expected"
            return f"pass {source} as a tensor where it is only computed with; {alternative}"
        return f"pass {source} as a tensor, or compile with dynamic=True"
    if "None" in (reason.expected, reason.got):
        if reason.holder != "argument":
            return (
                f"set {source} before the first call, such as in __init__, to a tensor that does what None does; "
                "or expect one recompile"
            )
        return f"pass {source} in every call, such as a tensor that does what None does; or expect one recompile"
    if reason.holder != "argument":
        return _PER_STATE.format(source=source) if library is None else _PER_SETTING.format(source=source, library=library)
    return _PER_VALUE


_PER_VALUE = (
    "one recompile per value is expected; to avoid it, pass the same value on every call, "
    "or branch on it outside the compiled function"
)


_PER_STATE = (
    "one recompile per value is expected; to avoid it, copy what {source} selects into one tensor in place, "
    "or branch on it outside the compiled function"
)
_PER_SETTING = "one recompile per value is expected: {source} is {library}'s; to avoid it, choose it before the first call"


def is_result(cause: Cause) -> bool:
    """Return whether the value was computed on the line of the graph break after which the function resumes."""
    source = spoken(cause.first.source)
    if cause.after is None or cause.first.holder not in ("argument", "object"):
        return False
    return source.startswith("<value of") or bool(re.match(rf"{re.escape(source)}\s*=(?!=)", cause.after.code))


def _needed(fixed: Specialized) -> str:
    if LOOP.search(fixed.code):
        return "loop outside the compiled function"
    return "index with a 1-element tensor, or compute it outside the compiled function and pass a tensor"


def _object_advice(cause: Cause) -> str:
    if MEMBER_OF_ENUM.match(cause.last.got or ""):
        return _PER_VALUE
    return "one recompile per object is expected; to avoid it, pass the same object"


MEMBER_OF_ENUM = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+$")


def _module_int_advice(cause: Cause) -> str:
    library = libraries.library_of(cause.first)
    if library is not None:
        return f"{library} changes it: call that outside the compiled function; or expect one recompile per value"
    if _COUNTS_A_LOOP.search(cause.first.code):
        return (
            "the loop is unrolled for each value, and one recompile per value is expected; "
            "to avoid it, compile the body, such as each block, or loop outside"
        )
    return f"make {spoken(cause.first.source)} a tensor buffer, updated in place"


_COUNTS_A_LOOP = re.compile(r"^(?:async )?for\b.*\[[^\]]*:|\brange\(|\bislice\(")


def _instances_advice(cause: Cause) -> str:
    reason, count = cause.first, len(cause.recompiles) + 1
    if reason.holder == "object" and not _is_size(reason):
        first = f"pass what depends on {spoken(reason.source)} as an argument, such as a tensor"
    elif _is_float_of_instances(reason):
        first = f"make {spoken(reason.source)} a tensor, such as a buffer: tensors of equal shape share the compiled code"
    elif cause.apart is not None:
        line = cause.apart.location.own.line
        first = f"remove the graph break at line {line}: each {reason.other_instance} is then part of the graph of its caller"
    else:
        first = f"compile the whole model that contains each {reason.other_instance}"
    return (
        f"{first}; or compile each with isolate_recompiles=True; "
        f"or raise torch._dynamo.config.recompile_limit above {max(count, cause.allowed or 0)}"
    )


def _is_float_of_instances(reason: Reason) -> bool:
    """Return whether instances differ only by a float: as a tensor, it would need no guard on its value."""
    names = {source.rpartition(".")[2] for source in (reason.source, *reason.differing)}
    return reason.kind == "value" and bool(_FLOAT.match(reason.expected or "")) and len(names) == 1


def _tensor_of(reason: Reason) -> str:
    """Return the name of a tensor of which a size or stride changed."""
    return spoken(re.sub(r"\.(?:size|stride)\(\)\[\d+\]$", "", reason.source))


def _stride_advice(cause: Cause) -> str:
    tensor = _tensor_of(cause.first)
    if re.search(r"[.\[]", tensor):  # stored in an object, such as the state of a cache
        return f"store {tensor} in one memory format: .contiguous(), or copy_() into one buffer, where it is assigned"
    return (
        f"pass {tensor} in one memory format: .contiguous(memory_format=...) before the call; "
        "of a view with sizes of 1: .clone(memory_format=torch.contiguous_format)"
    )


def differs_by_instance(reason: Reason) -> bool:
    """Return whether an attribute of `self` differs because the cache entry was compiled for another instance."""
    is_its_own = reason.source.startswith("self.") and reason.kind in (
        "value",
        "none",
        "length",
        "keys",
        "object",
        "function",
        "type",
    )
    return reason.other_instance is not None and is_its_own


_SETTERS = {
    "num_threads": "call torch.set_num_threads()",
    "default_dtype": "call torch.set_default_dtype()",
    "default_device": "call torch.set_default_device()",
    "deterministic_algorithms": "call torch.use_deterministic_algorithms()",
    "allow_tf32": "set torch.backends.cuda.matmul.allow_tf32",
    "autocast": "enter torch.autocast the same way for every call: set it",
    "torch_function": "enter the TorchFunctionMode the same way for every call: set it",
    "saved_tensors_hooks": "enter saved_tensors_hooks the same way for every call: set them",
}


def _setter(state: str) -> str:
    """Return how a user sets a field of torch's global state; "set it" for those that have no function of their own."""
    return next((call for field, call in _SETTERS.items() if field in state), "set it")


def _global_advice(cause: Cause) -> str:
    if _NUMBER.match(cause.first.expected or ""):
        return "pass it as an argument, or make it a tensor"
    return _PER_VALUE


def _function_advice(cause: Cause) -> str:
    if "behind torch's wrapper" in cause.first.source:
        return (
            "one compilation per callable object or built-in module is expected: torch compiles all through one function; "
            "to give it a cache of its own, compile a function that calls it"
        )
    return "pass the same function; or compile the callbacks, not their caller"


def _is_of_self(reason: Reason) -> bool:
    return spoken(reason.source).startswith("self.")


def _type_advice(cause: Cause) -> str:
    reason, source = cause.first, spoken(cause.first.source)
    types = f"{reason.expected} {reason.got}"
    if source == "self":
        return (
            "compile the whole model that contains them; or give each class its own forward; "
            f"or raise torch._dynamo.config.recompile_limit above {max(len(cause.recompiles) + 1, cause.allowed or 0)}"
        )
    if re.search(r"'(?:list|tuple|dict|set)'", types):
        return f"pass {source} as the same type of container on every call"
    if "Parameter'" in types:
        return f"pass {source} as the same class of tensor on every call: where no gradient is needed, {source}.detach()"
    if any(number in types for number in ("'int'", "'float'", "'bool'")):
        return f"pass {source} as a tensor on every call, or as a number on every call"
    if "a tensor type" in reason.text:
        return f"convert {source} to one class of tensor before the call"
    if "functools.partial" in types or "'function'" in types or "'method'" in types:
        return "pass the same kind of callable on every call; or compile the callbacks, not their caller"
    if reason.holder in ("module", "object"):
        return f"one recompile per class is expected; to avoid it, set {source} before the first call"
    return f"one recompile per class is expected; to avoid it, pass objects of one class as {source}"


DEVICES = r"\b(?:CPU|CUDA|XPU|MPS|HPU|Meta)\b"  # dispatch keys of a tensor's device


def is_device(reason: Reason) -> bool:
    """Return whether the device of a tensor differs; torch compares sets of dispatch keys, which contain it."""
    if reason.kind == "device":
        return True
    keys = [re.findall(DEVICES, value or "") for value in (reason.expected, reason.got)]
    return reason.kind == "tensor" and "dispatch key" in reason.text and keys[0] != keys[1]


def _attribute_advice(cause: Cause) -> str:
    source = spoken(cause.first.source)
    if re.fullmatch(r"\w+", source):
        return f"pass {source} on every call, or on none"
    if "_parameters[" in cause.first.source or "_buffers[" in cause.first.source:
        return f"assign {source} before the first call, and do not turn a parameter or buffer into a plain attribute"
    return f"set {source} on every object before the first call, such as in __init__"


def _size_or_shape_advice(cause: Cause) -> str:
    if "duck sizing" in cause.first.text:
        return (
            "these sizes were equal in the first call: warm up with sizes that differ, "
            "or torch.fx.experimental._config.use_duck_shape = False"
        )
    if cause.first.other_instance is not None and (cause.fixed is not None or _is_of_self(cause.first)):
        return _instances_advice(cause)  # sizes of the parameters, buffers or layers of each instance
    return size_advice(cause)


def advice_on(cause: Cause) -> str:
    """Return the advice for a cause: of the library that holds the value, if known, else that of its rule."""
    return libraries.advice_on_value(cause.first) or cause.rule.advice(cause)


def _always(text: str) -> Callable[[Cause], str]:
    return lambda cause: text.format(source=spoken(cause.first.source), name=cause.first.source.rpartition(".")[2])


# The first rule that applies is used: more specific rules come first.
RULES: tuple[RecompileRule, ...] = (
    RecompileRule(
        "DX113",
        "an optimizer setting changes inside the compiled step",
        lambda r: r.holder == "optimizer" and r.kind not in _CONTAINER,
        _always("call step() uncompiled, or make {name} a tensor"),
    ),
    RecompileRule(
        "DX115",
        "instances of one class share its compiled code",
        differs_by_instance,
        _instances_advice,
    ),
    RecompileRule(
        "DX107",
        "train and eval mode alternate",
        lambda r: r.source.endswith(".training") and r.kind in ("value", "object", "other"),
        _always("one recompile per mode is expected; to avoid it, evaluate with the uncompiled module"),
    ),
    RecompileRule(
        "DX108",
        "grad mode differs between calls",
        is_grad_mode,
        _always(
            "one recompile per mode is expected; to avoid it, make every call in the same mode (no_grad, inference_mode or "
            "neither), also to warm up and in other threads; or call the uncompiled function in the other mode"
        ),
    ),
    RecompileRule(
        "DX109",
        "global torch state differs between calls",
        _kind("global_state"),
        lambda cause: f"{_setter(cause.first.source)} once, before the first call, and leave it",
    ),
    RecompileRule(
        "DX112",
        "a new backend object on every compile",
        _kind("backend"),
        _always("create the backend once and pass the same object"),
    ),
    RecompileRule("DX102", "a tensor's size changes", _is_size, _size_or_shape_advice),
    RecompileRule(
        "DX105", "a tensor's dtype changes", _kind("dtype"), _always("convert {source} to one dtype before the call")
    ),
    RecompileRule(
        "DX106",
        "a tensor's requires_grad changes",
        _kind("requires_grad"),
        _requires_grad_advice,
    ),
    RecompileRule(
        "DX104",
        "a container's length changes",
        _kind(*_CONTAINER),
        _container_advice,
    ),
    RecompileRule(
        "DX101",
        "an int on a module changes",
        _module_int,
        _module_int_advice,
    ),
    RecompileRule(
        "DX116",
        "two arguments are one tensor in some calls only",
        _kind("alias"),
        _always("pass different tensors on every call: copy one with clone() where it is the same"),
    ),
    RecompileRule(
        "DX117",
        "a tensor's strides change",
        _kind("stride"),
        _stride_advice,
    ),
    RecompileRule(
        "DX103",
        "a global changes",
        _kind("value", "none", holder="global"),
        _global_advice,
    ),
    RecompileRule(
        "DX111",
        "another function object is called",
        _kind("function"),
        _function_advice,
    ),
    RecompileRule(
        "DX110",
        "an object guarded by identity is replaced",
        _kind("object"),
        _object_advice,
    ),
    RecompileRule(
        "DX118",
        "a tensor's device changes",
        is_device,
        _always("one recompile per device is expected; to avoid it, move {source} to one device before the call"),
    ),
    RecompileRule(
        "DX119",
        "a tensor's number of dims changes",
        _kind("rank"),
        _always(
            "one recompile per number of dims is expected; to avoid it, give {source} one number of dims before the call: "
            "reshape it, with mark_dynamic where a size differs; unsqueeze makes a size of 1, which compiles on its own"
        ),
    ),
    RecompileRule("DX120", "a value's type changes", _kind("type"), _type_advice),
    RecompileRule(
        "DX121",
        "an attribute is there in some calls only",
        _kind("attribute"),
        _attribute_advice,
    ),
    RecompileRule("DX114", "a Python value changes", _kind("value", "none", "shape"), _value_advice),
)
