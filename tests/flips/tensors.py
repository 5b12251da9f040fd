"""Properties of tensors, conditions on symbolic sizes and numbers, and aliasing."""

from __future__ import annotations

import torch

from flips.base import DYNAMIC, FLIPS, STATIC, calls, has_guard, ones

CONDITION = "a condition on a symbolic number is one-sided: each entry has its own condition, and each call its own number"
SIZE_ONE = "torch compiles sizes 0 and 1 as constants"
TEXT_OF_ALIASES = "tensors that have to differ are guarded by another guard than tensors that have to be the same"


def tensors(name, function, first, second, there, back=None, why="", options=STATIC):
    """Register a flip of all arguments, which are created anew for each direction."""
    FLIPS[name] = lambda: calls(function, first(), second(), there, back, why, options=options)


def dynamic(name, function, first, second, there, back, why=CONDITION):
    tensors(name, function, lambda: first, lambda: second, there, back, why, DYNAMIC)


def plus_one(x):
    return x + 1


def plus(x, n):
    return x + n


def complex_ones():
    return ones(3, dtype=torch.complex64)


def inference_tensor():
    with torch.inference_mode():
        return ones(3)


class Subclass(torch.Tensor):
    pass


tensors("a size", plus_one, lambda: (ones(2, 3),), lambda: (ones(2, 5),), ("size", "x.size()[1]", "3", "5"))
tensors("a stride", plus_one, lambda: (ones(3),), lambda: (ones(1).expand(3),), ("stride", "x.stride()[0]", "1", "0"))
tensors("a rank", plus_one, lambda: (ones(3),), lambda: (ones(3, 3),), ("rank", "x", "1", "2"))
tensors("a dtype", plus_one, lambda: (ones(3),), lambda: (ones(3).half(),), ("dtype", "x", "Float", "Half"))
tensors(
    "requires_grad",
    plus_one,
    lambda: (ones(3, requires_grad=True),),
    lambda: (ones(3),),
    ("requires_grad", "x", "True", "False"),
)
tensors(
    "a conjugate",
    plus_one,
    lambda: (complex_ones(),),
    lambda: (complex_ones().conj(),),
    (
        "tensor",
        "x",
        "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU)",
        "DispatchKeySet(CPU, BackendSelect, Conjugate, ADInplaceOrView, AutogradCPU)",
    ),
)
tensors(
    "an inference tensor",
    plus_one,
    lambda: (ones(3),),
    lambda: (inference_tensor(),),
    (
        "tensor",
        "x",
        "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU)",
        "DispatchKeySet(CPU, BackendSelect, ADInplaceOrView)",
    ),
)
tensors(
    "a tensor subclass",
    plus_one,
    lambda: (ones(3),),
    lambda: (ones(3).as_subclass(Subclass),),
    ("type", "x", "<class 'torch.Tensor'>", f"<class '{__name__}.Subclass'>"),
)
MARKING = ("other", "mark_dynamic, mark_static or mark_unbacked of a tensor", "absent", "present")
if not has_guard("CONSTANT_SUBCLASS_MATCH"):  # torch 2.11 has a guard for each mark
    MARKING = ("attribute", "x._dynamo_dynamic_indices", "absent", "present")


class Tagged(torch.Tensor):
    """A tensor with metadata of its own."""

    @staticmethod
    def __new__(cls, inner, tag):
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    def __init__(self, inner, tag):
        self.inner, self.tag = inner, tag

    def __tensor_flatten__(self):
        return ["inner"], self.tag

    @staticmethod
    def __tensor_unflatten__(inner, tag, size, stride):
        return Tagged(inner["inner"], tag)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        tag = next(arg.tag for arg in args if isinstance(arg, Tagged))
        return Tagged(function(*(getattr(arg, "inner", arg) for arg in args), **(kwargs or {})), tag)


tensors(
    "metadata of a tensor subclass",
    plus_one,
    lambda: (Tagged(ones(3), "left"),),
    lambda: (Tagged(ones(3), "right"),),
    ("other", "metadata of a tensor subclass", None, None),  # to read it runs the user's `__tensor_flatten__`
)
tensors(
    "mark_dynamic",
    plus_one,
    lambda: (ones(3),),
    lambda: (marked(),),
    MARKING,
    None,
    "an entry for marked sizes accepts an unmarked tensor",
    {},
)


def marked():
    x = ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    return x


def same():
    x = ones(3)
    return x, x


tensors(
    "one tensor twice",
    plus,
    same,
    lambda: (ones(3), ones(3)),
    ("alias", "x", "is n", "is not n"),
    ("alias", '["n", "x"]', "different tensors", "the same tensor"),
    TEXT_OF_ALIASES,
)


def by_size(x):
    return x + 1 if x.size(0) < 5 else x - 1


def by_number(x, n):
    return x + n if n < 10 else x - n


dynamic(
    "a bound of a size",
    by_size,
    (ones(3),),
    (ones(9),),
    ("shape", "x.size()[0]", "2 <= x.size()[0] <= 4", "9"),
    ("shape", "x.size()[0]", "5 <= x.size()[0]", "3"),
)
dynamic(
    "a size and a constant size",
    plus_one,
    (ones(4),),
    (ones(1),),
    ("shape", "x.size()[0]", "2 <= x.size()[0]", "1"),
    ("size", "x.size()[0]", "1", "4"),
    SIZE_ONE,
)
dynamic(
    "an exact size",
    lambda x: x + 1 if x.size(0) == 4 else x - 1,
    (ones(4),),
    (ones(5),),
    ("size", "x.size()[0]", "4", "5"),
    ("shape", "x.size()[0]", "x.size()[0] != 4", "4"),
)
dynamic(
    "a remainder of a size",
    lambda x: x + 1 if x.size(0) % 2 == 0 else x - 1,
    (ones(4),),
    (ones(5),),
    ("shape", "x.size()[0]", "(x.size()[0] % 2) == 0", "5"),
    ("shape", "x.size()[0]", "(x.size()[0] % 2) != 0", "4"),
)
dynamic(
    "equal sizes",
    lambda x, y: x.sum() + y.sum() if x.size(0) == y.size(0) else x.sum(),
    (ones(4), ones(4)),
    (ones(5), ones(6)),
    ("shape", "y.size()[0]", "y.size()[0] == x.size()[0]", "6"),
    ("shape", "x.size()[0]", "x.size()[0] != y.size()[0]", "4"),
)
dynamic(
    "a bound of an int",
    by_number,
    (ones(4), 4),
    (ones(4), 12),
    ("shape", "n", "n <= 9", "12"),
    ("shape", "n", "10 <= n", "4"),
)
dynamic(
    "a bound of a float",
    by_number,
    (ones(4), 4.5),
    (ones(4), 12.5),
    ("shape", "n", "n < 10.0", "12.5"),
    ("shape", "n", "n >= 10.0", "4.5"),
)
dynamic(
    "a remainder of an int",
    lambda x, n: x + n if n % 2 == 0 else x - n,
    (ones(4), 4),
    (ones(4), 5),
    ("shape", "n", "(n % 2) == 0", "5"),
    ("shape", "n", "(n % 2) != 0", "4"),
)


if has_guard("COW_TENSOR_MATCH"):

    def by_copy_on_write(x):
        return x + 1 if torch._C._is_cow_tensor(x) else x - 1

    tensors(
        "a copy-on-write tensor",
        by_copy_on_write,
        lambda: (ones(3),),
        lambda: (torch._lazy_clone(ones(3)),),
        ("tensor", "x", "not copy-on-write", "copy-on-write"),
    )
