"""Every change that can be made to a model after it was compiled, one at a time."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import models
import torch
from support.restoring import attribute, setting
from torch import nn
from torch.overrides import TorchFunctionMode


class Change(NamedTuple):
    """`make` changes a model built from the same seed, or its list of arguments; it may return a function to undo it."""

    kind: str
    name: str
    make: Callable[[nn.Module, list[Any]], Any]


def changes(model: nn.Module, args: tuple[torch.Tensor, ...]) -> Iterator[Change]:
    """List the changes to every module, parameter, buffer and attribute that can be reached, the arguments and global state."""
    for path, module in model.named_modules():
        module_changes = [*_values(module), *_containers(module), *_tensors(module), *_structure(module)]
        for kind, name, make in module_changes:
            yield Change(
                kind,
                f"{path or 'model'}.{name}",
                lambda model, _, make=make, path=path: _apply(make, model.get_submodule(path)),
            )
    yield Change("global", "models.GLOBAL", lambda model, _: setattr(models, "GLOBAL", models.GLOBAL + 1))
    yield Change("global", "a function", lambda model, _: _enter(attribute(models, "shifted", lambda x: x - models.GLOBAL)))
    for name, to in _ARGUMENTS.items():
        if args[0].is_floating_point() or name in ("longer", "of a subclass"):
            yield Change("argument", f"argument {name}", lambda _, args, to=to: args.__setitem__(0, to(args[0])))
    for name, context in _AMBIENT.items():
        yield Change("ambient", name, lambda *_, context=context: _enter(context()))


_ARGUMENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "longer": lambda x: torch.cat([x, x]),
    "double": torch.Tensor.double,
    "with a gradient": lambda x: x.clone().requires_grad_(),
    "transposed in memory": lambda x: _other_stride(x),
    "of a subclass": lambda x: x.as_subclass(Other),
    "without a batch": lambda x: x[0],
    "with a zero stride": lambda x: x[:1].expand(2, -1),
}
_AMBIENT: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "default device": lambda: torch.device("meta"),
    "deterministic algorithms": lambda: setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "saved tensor hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "a torch function mode": lambda: Doubling(),
    "torch._dynamo.config": lambda: torch._dynamo.config.patch(assume_static_by_default=False),
}


class Other(torch.Tensor):
    """A tensor subclass."""


class Doubling(TorchFunctionMode):
    """Changes the result of torch.relu."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        return out * 2 if function is torch.relu else out


def _enter(context) -> Callable[[], object]:
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def _apply(make, module) -> Callable[[], object] | None:
    undo = make(module)
    return undo if isinstance(undo, FunctionType) else None


def another(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 + 1
    if isinstance(value, str):
        return value + "_other"
    if value is None:
        return 3
    if isinstance(value, enum.Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, tuple) and value:
        return (another(value[0]), *value[1:])
    if isinstance(value, FunctionType):
        return models.closing_over(7.0)
    if value in (torch.relu, torch.tanh, torch.sigmoid):
        return torch.neg
    return None


def _values(module) -> Iterator[tuple[str, str, Callable]]:
    for name, value in vars(module).items():
        if name.startswith("_") or (another(value) is None and not isinstance(value, (list, dict, set, torch.Tensor))):
            continue
        yield "deleted", f"{name} deleted", lambda m, n=name: delattr(m, n)
        if another(value) is not None:
            yield "attribute", f"{name} changed", lambda m, n=name: setattr(m, n, another(getattr(m, n)))
            yield "attribute", f"{name} by __dict__", lambda m, n=name: vars(m).update({n: another(getattr(m, n))})
            yield "type", f"{name} of another type", lambda m, n=name: setattr(m, n, _another_type(getattr(m, n)))
        if isinstance(value, FunctionType) and value.__defaults__:
            yield "default", f"{name}'s default", lambda m, n=name: setattr(getattr(m, n), "__defaults__", (9.0,))
        if isinstance(value, FunctionType):
            yield "code", f"{name}'s code", lambda m, n=name: _swap_code(getattr(m, n))
        if isinstance(value, FunctionType) and value.__closure__:
            yield "cell", f"{name}'s cell", lambda m, n=name: setattr(getattr(m, n).__closure__[0], "cell_contents", 9.0)
    for name, value in vars(type(module)).items():
        if type(value) in (int, float, bool, str) and not name.startswith("_"):
            yield "instance hides class", f"{name} hidden", lambda m, n=name: setattr(m, n, another(getattr(m, n)))
    if isinstance(module, models.Plain):
        yield "class attribute", "of_class", lambda m: _enter(attribute(models.Plain, "of_class", 9.0))


def _swap_code(function: FunctionType) -> None:
    function.__code__ = models.dividing_by(1.0).__code__ if function.__closure__ else models.shifted.__code__


def _another_type(value: Any) -> Any:
    return 2.5 if isinstance(value, (int, str, tuple)) or value is None else 2


def _containers(module) -> Iterator[tuple[str, str, Callable]]:
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, list) and value and another(value[0]) is not None:
            yield "list", f"{name}[0]", lambda m, n=name: getattr(m, n).__setitem__(0, another(getattr(m, n)[0]))
            yield "list", f"{name} longer", lambda m, n=name: getattr(m, n).append(getattr(m, n)[0])
            yield "list", f"{name} shorter", lambda m, n=name: getattr(m, n).pop()
        if isinstance(value, dict) and value:
            key = next(iter(value))
            if another(value[key]) is not None:
                yield "dict", f"{name}[{key!r}]", lambda m, n=name, k=key: getattr(m, n).update({k: another(getattr(m, n)[k])})
            yield "dict", f"{name} with a key more", lambda m, n=name: getattr(m, n).update(more=3.0)
            yield "dict", f"{name} with a key less", lambda m, n=name, k=key: getattr(m, n).pop(k)
        if isinstance(value, set) and value:
            yield "set", f"{name} empty", lambda m, n=name: getattr(m, n).clear()


def _tensors(module) -> Iterator[tuple[str, str, Callable]]:
    tensors = {
        **module._parameters,
        **module._buffers,
        **{k: v for k, v in vars(module).items() if isinstance(v, torch.Tensor)},
    }
    for name, value in tensors.items():
        if value is None:
            continue
        is_parameter = name in module._parameters
        floating = value.is_floating_point()
        yield "tensor values", f"{name} in place", lambda m, n=name: getattr(m, n).data.add_(1)
        yield "tensor replaced", f"{name} by one alike", lambda m, n=name: _put(m, n, getattr(m, n).detach() + 1)
        yield "tensor shape", f"{name} by a longer one", lambda m, n=name: _put(m, n, _longer(getattr(m, n).detach()))
        yield (
            "tensor data shape",
            f"{name}.data longer",
            lambda m, n=name: setattr(getattr(m, n), "data", _longer(getattr(m, n).data)),
        )
        yield "tensor gone", f"{name} is None", lambda m, n=name: setattr(m, n, None)
        yield "tensor gone", f"{name} deleted", lambda m, n=name: delattr(m, n)
        if floating:
            yield "tensor dtype", f"{name} double", lambda m, n=name: _put(m, n, getattr(m, n).detach().double())
            yield (
                "tensor data dtype",
                f"{name}.data double",
                lambda m, n=name: setattr(getattr(m, n), "data", getattr(m, n).data.double()),
            )
            yield (
                "requires_grad",
                f"{name} requires_grad",
                lambda m, n=name: getattr(m, n).requires_grad_(not getattr(m, n).requires_grad),
            )
        if value.dim() == 2:
            yield (
                "tensor stride",
                f"{name} transposed in memory",
                lambda m, n=name: _put(m, n, _other_stride(getattr(m, n).detach())),
            )
            yield (
                "tensor data stride",
                f"{name}.data transposed in memory",
                lambda m, n=name: setattr(getattr(m, n), "data", _other_stride(getattr(m, n).data)),
            )
        if is_parameter and floating:
            yield "tensor type", f"{name} is a plain tensor", lambda m, n=name: _plain(m, n)


def _put(module, name, value) -> None:
    is_parameter = name in module._parameters and value.is_floating_point()
    setattr(module, name, nn.Parameter(value) if is_parameter else value)


def _plain(module, name) -> None:
    value = getattr(module, name).detach().clone()
    delattr(module, name)
    setattr(module, name, value)


def _longer(value):
    return torch.cat([value, value]) if value.dim() else value.expand(2).clone()


def _other_stride(value):
    return value.t().contiguous().t()


def _structure(module) -> Iterator[tuple[str, str, Callable]]:
    yield "training", "eval or train", lambda m: m.train(not m.training)
    yield "hook", "forward hook", lambda m: m.register_forward_hook(lambda m, args, out: _mapped(out))
    yield "hook", "forward pre-hook", lambda m: m.register_forward_pre_hook(lambda m, args: tuple(map(_mapped, args)))
    yield "forward", "forward on the instance", lambda m: setattr(m, "forward", _negated(m.forward))
    yield "class", "class", _change_class
    yield "class attribute", "forward", lambda m: _enter(attribute(type(m), "forward", _doubled(type(m).forward)))
    for name, child in module.named_children():
        yield "child", f"{name} by another kind", lambda m, n=name: m._modules.__setitem__(n, nn.Softsign())
        yield "child", f"{name} deleted", lambda m, n=name: m._modules.pop(n)
        if any(True for _ in child.parameters()):
            yield (
                "child",
                f"{name} by a copy with other weights",
                lambda m, n=name: m._modules.__setitem__(n, _heavier(m._modules[n])),
            )
    if isinstance(module, nn.ModuleList):
        yield "child", "one more", lambda m: m.append(nn.Softsign())
        yield "child", "one less", lambda m: m.__delitem__(len(m) - 1)
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(module) > 1:
        yield "child", "two swapped", _swap
    if isinstance(module, nn.ModuleDict):
        yield "child", "one more", lambda m: m.update({"more": nn.Softsign()})


def _mapped(value):
    return value * 2 if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _negated(forward):
    def other_forward(*args, **kwargs):
        out = forward(*args, **kwargs)
        return -out if isinstance(out, torch.Tensor) else out

    return other_forward


def _doubled(forward):
    def other_forward(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        return out * 2 if isinstance(out, torch.Tensor) else out

    return other_forward


def _change_class(module) -> None:
    def forward(self, *args, **kwargs):
        out = before(self, *args, **kwargs)
        return -out if isinstance(out, torch.Tensor) else out

    before = type(module).forward
    module.__class__ = type("Other", (type(module),), {"forward": forward})


def _heavier(module):
    module = copy.deepcopy(module)
    with torch.no_grad():
        for param in module.parameters():
            param.mul_(2)
    return module


def _swap(module) -> None:
    first, second = list(module._modules)[:2]
    module._modules[first], module._modules[second] = module._modules[second], module._modules[first]
