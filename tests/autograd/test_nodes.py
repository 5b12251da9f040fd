"""Nodes of other kinds in captured backward passes: BackwardState, tensor subclasses, collectives, nodes of C++, dead code."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.two_tensor import TwoTensor

import dynx
from dynx.autograd import CaptureLog


def grads(f: Callable[[torch.Tensor], torch.Tensor], steps: int = 2) -> list[torch.Tensor]:
    """Return the gradient of a vector after each of some steps."""
    found = []
    for step in range(steps):
        x = torch.linspace(-1, step + 1, 4, requires_grad=True)
        f(x).backward()
        found.append(x.grad)
    return found


def compared(make: Callable[[], Callable[[torch.Tensor], torch.Tensor]], backend: str = "aot_eager") -> CaptureLog:
    """Check that gradients are those of eager passes; return the log."""
    expected = grads(make())
    torch._dynamo.reset()
    with dynx.autograd.capture(backend) as log:
        torch.testing.assert_close(grads(make()), expected, rtol=0, atol=0)
    assert not log.troubles
    return log


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_hook_registered_in_a_compiled_function_runs_by_backward_state(backend):
    def make():
        def f(x):
            y = x * 2
            y.register_hook(lambda g: g * 3)
            return (y * y).sum()

        return torch.compile(f, backend="aot_eager", fullgraph=True)

    assert [capture.calls for capture in compared(make, backend)] == [2]


def test_a_tensor_subclass_through_a_compiled_forward_pass():
    def make():
        compiled = torch.compile(lambda t: (t * 2).sin(), backend="aot_eager")

        def f(x):
            t = TwoTensor(x.detach(), x.detach() * 2).requires_grad_()
            compiled(t).sum().backward()
            return (x * t.grad.a + x * t.grad.b).sum()

        return f

    with_subclass, plain = compared(make)
    assert (with_subclass.calls, plain.calls) == (2, 2)


def test_a_gradient_of_another_class_is_named():
    def loss(t):
        return (t * 2).sum()

    torch._dynamo.reset()
    with dynx.autograd.capture(backend="aot_eager") as log:
        loss(torch.ones(3, requires_grad=True)).backward()
        loss(TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_()).backward()
    reason = log[1].reason
    assert (reason.subject, reason.before, reason.after) == ("class of the output", "Tensor", "TwoTensor")


def test_collectives(tmp_path):
    import torch.distributed._functional_collectives as functional

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:

        def f(x):
            y = functional.all_to_all_single_autograd(x * 2, [len(x)], [len(x)], dist.group.WORLD)
            return (functional.wait_tensor(y) * 3).sum()

        assert [capture.calls for capture in compared(lambda: f, "eager")] == [2]
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not hasattr(torch._dynamo.config, "trace_autograd_ops"), reason="this torch has no trace_autograd_ops")
def test_autograd_grad_in_a_compiled_function_is_refused_by_name():
    """Dynamo does not trace it while compiled autograd is enabled."""

    def f(x):
        (g,) = torch.autograd.grad((x * x).sum(), x)
        return (x * g.detach()).sum()

    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    x = torch.ones(2, requires_grad=True)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        compiled(x)
        torch._dynamo.reset()
        with (
            dynx.autograd.capture(),
            pytest.raises(torch._dynamo.exc.Unsupported, match="with compiled autograd"),
        ):
            compiled(x)


def test_code_without_a_result_is_kept():
    calls: list[str] = []

    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            calls.append("backward")

    def f(x):
        x.register_hook(lambda g: calls.append("hook"))  # returns None: the gradient stays
        return (Count.apply(x.detach().requires_grad_()) + x).sum()

    (capture,) = compared(lambda: f, "eager")
    assert capture.calls == 2
    assert sorted(calls) == ["backward"] * 4 + ["hook"] * 4


CUBES = """
#include <torch/torch.h>
using namespace torch::autograd;

template <bool traceable>
struct Cube : public Function<Cube<traceable>> {
  static constexpr bool is_traceable = traceable;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x * x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    auto x = ctx->get_saved_variables()[0];
    return {3 * x * x * g[0]};
  }
};
at::Tensor plain(const at::Tensor& x) { return Cube<false>::apply(x); }
at::Tensor traceable(const at::Tensor& x) { return Cube<true>::apply(x); }
TORCH_LIBRARY(dynx_cubes, m) { m.def("plain", plain); m.def("traceable", traceable); }
"""


@pytest.mark.slow  # compiles C++ for half a minute
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("ninja")), reason="needs g++ and ninja")
def test_a_node_of_cpp_that_is_not_traceable_runs_uncompiled_and_says_so(tmp_path):
    from torch.utils.cpp_extension import load_inline

    load_inline("dynx_cubes", cpp_sources=CUBES, is_python_module=False, build_directory=str(tmp_path))
    for name, is_eager in (("traceable", False), ("plain", True)):
        cube = getattr(torch.ops.dynx_cubes, name)
        (capture,) = compared(lambda cube=cube: lambda x: cube(x).sum(), "eager")
        assert capture.nodes[2].is_eager is is_eager
        assert str(capture.nodes[2]).startswith("CppNode<Cube<")
    with dynx.autograd.capture("eager", fullgraph=True), pytest.raises(torch._dynamo.exc.Unsupported):
        torch.ops.dynx_cubes.plain(torch.ones(2, requires_grad=True)).sum().backward()


@pytest.mark.gpu
@pytest.mark.parametrize("is_moved", [True, False])
def test_scalars_on_the_cpu_become_inputs_on_the_gpu_only_for_cuda_graphs(is_moved):
    """Torch moves them (`move_graph_nodes_to_cuda`) if CUDA graphs are on, and if every user is an operation on the GPU."""

    def step():
        x = torch.linspace(-1, 1, 4, device="cuda", requires_grad=True)
        (x * torch.tensor(3.0)).sum().backward()  # saves a tensor of the CPU
        return x.grad

    expected = step()
    torch._dynamo.reset()
    settings = torch._inductor.config.patch({"triton.cudagraphs": is_moved}) if is_moved else contextlib.nullcontext()
    with settings, dynx.autograd.capture(backend="aot_eager") as log:
        torch.testing.assert_close([step(), step()], [expected, expected])
    assert not log.troubles
    assert [capture.calls for capture in log] == [2]
