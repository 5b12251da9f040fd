"""Properties of tensors: sizes, strides, dtype, device, class, aliasing."""

from __future__ import annotations

import torch

from recompile_causes.base import STEADY, Cause, cause, ones, plus_one

PARAMETER = "torch.nn.parameter.Parameter"
KEYS = ", BackendSelect, ADInplaceOrView, Autograd"


@cause
def size_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(4),),
        "size",
        "x.size()[0]",
        "3",
        "4",
        rule="DX102",
        advised=lambda: Cause(plus_one, (marked(3),), (marked(4),), options={}),
    )


def marked(*size):
    x = ones(*size)
    torch._dynamo.mark_dynamic(x, len(size) - 1)
    return x


@cause
def size_of_an_inner_dimension():
    return Cause(
        plus_one,
        (ones(2, 3),),
        (ones(2, 5),),
        "size",
        "x.size()[1]",
        "3",
        "5",
        rule="DX102",
        advised=lambda: Cause(plus_one, (marked(2, 3),), (marked(2, 5),), options={}),
    )


@cause
def stride_of_a_tensor():
    return Cause(plus_one, (ones(3, 3),), (ones(3, 3).t(),), "stride", "x.stride()[0]", "3", "1", rule="DX117", advised=STEADY)


@cause
def rank_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(1, 3),),
        "rank",
        "x",
        "1",
        "2",
        rule="DX119",
        advised=lambda: Cause(plus_one, (ones(3).unsqueeze(0),), (ones(1, 3),)),
    )


@cause
def dtype_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3).double(),),
        "dtype",
        "x",
        "Float",
        "Double",
        rule="DX105",
        advised=lambda: Cause(plus_one, (ones(3),), (ones(3).double().float(),)),
    )


@cause
def requires_grad_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3, requires_grad=True),),
        "requires_grad",
        "x",
        "False",
        "True",
        rule="DX106",
        advised=lambda: Cause(plus_one, (ones(3),), (ones(3, requires_grad=True).detach(),)),
    )


@cause
def class_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (torch.nn.Parameter(ones(3), requires_grad=False),),
        "type",
        "x",
        "<class 'torch.Tensor'>",
        f"<class '{PARAMETER}'>",
        rule="DX120",
        advised=lambda: Cause(plus_one, (ones(3),), (torch.nn.Parameter(ones(3)).detach(),)),
    )


@cause
def device_of_a_tensor():
    return Cause(
        plus_one,
        (ones(3),),
        (ones(3, device="meta"),),
        "tensor",
        "x",
        f"DispatchKeySet(CPU{KEYS}CPU)",
        f"DispatchKeySet(Meta{KEYS}Meta)",
        rule="DX118",
        advised=lambda: Cause(plus_one, (ones(3).to("meta"),), (ones(3, device="meta"),)),
    )


@cause
def the_same_tensor_twice():
    def added(x, y):
        return x + y  # HERE

    x = ones(3)
    return Cause(added, (x, x), (x, ones(3)), "alias", "x", "is y", "is not y", rule="DX116", advised=STEADY)


@cause
def a_branch_on_a_size():
    def branched(x):
        return x + 1 if x.size(0) > 5 else x - 1  # HERE

    return Cause(
        branched,
        (ones(8),),
        (ones(3),),
        "shape",
        "x.size()[0]",
        "6 <= x.size()[0]",
        "3",
        options={"dynamic": True},
        rule="DX102",
        advised=STEADY,
    )
