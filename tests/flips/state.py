"""Global state of torch, backends, configuration, and guards of the user's own."""

from __future__ import annotations

import contextlib
import sys

import torch
from support.restoring import attribute, setting
from torch.overrides import TorchFunctionMode

import dynx
from dynx.comptime import comptime
from flips.base import Flip, Seen, changing, flip, mirrored, ones


def plus_one(x):
    return x + 1


class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def ambient(name, field, values, change):
    changing(name, plus_one, change, ("global_state", field, *(f"{field} {value}" for value in values)))


def replaced(get, put, value):
    return lambda: setting(get, put, value)


ambient("grad mode", "grad_mode", ("True", "False"), torch.no_grad)
ambient("functions of torch disabled", "torch_function", ("True", "False"), torch._C.DisableTorchFunctionSubclass)
ambient("a function mode", "torch_function_mode_stack", ("empty", "Mode"), Mode)
ambient("a default device", "torch_function_mode_stack", ("empty", "DeviceContext(meta)"), lambda: torch.device("meta"))
ambient(
    "the number of threads",
    "num_threads",
    (torch.get_num_threads(), 3),
    replaced(torch.get_num_threads, torch.set_num_threads, 3),
)
ambient(
    "a default dtype",
    "default_dtype",
    ("float32", "float64"),
    replaced(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
)


@flip
def the_dtype_of_autocast():
    compiled = torch.compile(plus_one, backend="eager")

    def call(dtype):
        with torch.autocast("cpu", dtype):
            compiled(ones(3))

    field = "autocast(cpu)_dtype"
    return mirrored(
        lambda: call(torch.bfloat16),
        lambda: call(torch.float16),
        "global_state",
        field,
        (f"{field} bfloat16", f"{field} float16"),
    )


@flip
def hooks_of_saved_tensors():
    def pack(x):
        return x

    def unpack(x):
        return x

    compiled = torch.compile(plus_one, backend="eager")
    hooks = torch.fx.symbolic_trace(pack), torch.fx.symbolic_trace(unpack)
    x = ones(3, requires_grad=True)

    def hooked():
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            compiled(x)

    name = "saved_tensors_hooks"
    return mirrored(lambda: compiled(x), hooked, "global_state", name, (f"{name} none", f"{name} pack and unpack"))


@flip
def a_backend():
    def first_backend(graph_module, inputs):
        return graph_module.forward

    def second_backend(graph_module, inputs):
        return graph_module.forward

    first, second = (torch.compile(plus_one, backend=backend) for backend in (first_backend, second_backend))
    return mirrored(lambda: first(ones(3)), lambda: second(ones(3)), "backend", "backend", ("first_backend", "second_backend"))


@flip
def a_configuration():
    compiled = dynx.compile(plus_one, backend="eager")

    def configured():
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            compiled(ones(3))

    name = "torch._dynamo.config.capture_scalar_outputs"
    return mirrored(lambda: compiled(ones(3)), configured, "config", name, ("False", "True"))


TEMPERATURE = 1


@flip
def a_guard_of_the_user():
    @torch.compile(backend="eager")
    def sampled(x):
        comptime(lambda ctx: ctx.guard_on(lambda: TEMPERATURE, name="temperature"))
        return x * 2

    def warmer():
        with attribute(sys.modules[__name__], "TEMPERATURE", 2):
            sampled(ones(3))

    return mirrored(lambda: sampled(ones(3)), warmer, "custom", "temperature", ("1", "2"))


@flip
def a_transform_of_functorch():
    compiled = torch.compile(lambda x: x.sin(), backend="eager")

    def call(randomness):
        torch.func.vmap(compiled, randomness=randomness)(ones(2, 3))

    name = "functorch_stack"
    return mirrored(
        lambda: call("error"), lambda: call("same"), "global_state", name, (f"{name} Vmap 1 error", f"{name} Vmap 1 same")
    )


@flip
def a_level_of_forward_ad():
    compiled = torch.compile(lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1], backend="eager")

    def inside():
        with torch.autograd.forward_ad.dual_level(), contextlib.suppress(Exception):
            compiled(ones(3))

    name = "forward_ad_level"
    seen = Seen("global_state", name, f"{name} -1", f"{name} 0")
    return Flip(lambda: compiled(ones(3)), inside, seen, None, "torch cannot compile jvp in a level: no entry is made for it")
