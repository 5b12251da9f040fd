"""Outputs that alias arguments or parameters, and copies that keep the strides of the output."""

from __future__ import annotations

import warnings

import pytest
import torch
from support.configs import config_for

from dynx import cudagraphs

ALIASES = {
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(0)[1],
    "slice": lambda x: x[1:],
    "transposed": lambda x: x[:, 1:].t(),
    "itself": lambda x: x,
    "detached": lambda x: x.detach(),
}


def share_storage(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


NO_GRAPH = pytest.param("itself", marks=pytest.mark.uncaptured)  # compiles to no graph


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", [NO_GRAPH, *(name for name in ALIASES if name != "itself")])
def test_compiled_function_returns_views_that_share_input_storage(compiled, device, name, grad):
    run = compiled(ALIASES[name])
    for rows in (4, 4, 5, 5, 6, 6, 6, 4):  # the later calls use the graph with dynamic shapes
        x = torch.rand(rows, 6, device=device, requires_grad=grad)
        with torch.set_grad_enabled(grad):
            actual = run(x)
        assert torch.equal(actual, ALIASES[name](x))
        assert share_storage(actual, x)


ALIASES_OF_MUTATED = {
    "chunk": lambda x: (x.chunk(2)[1],),
    "transposed": lambda x: (x[1:].t(), x[1:].expand(2, -1, -1)),
    "overlapping": lambda x: (x[1:], x[2:]),
    "viewed as int32": lambda x: (x[1:].view(torch.int32), x[1:, 2:4]),
    "conjugated": lambda x: (torch.view_as_complex(x.view(x.shape[0], -1, 2)).conj().imag,),
    "complex": lambda x: (torch.view_as_complex(x.view(x.shape[0], -1, 2))[1:],),
    "conjugate and empty": lambda x: (torch.view_as_complex(x.view(x.shape[0], -1, 2))[1:].conj(), x[x.shape[0] :]),
    "graph split by item()": lambda x: (x[1:], x * x.cos().sin().exp().sum().item()),
}


@pytest.mark.parametrize(
    ("name", "outputs"), [(name, outputs) for name in ALIASES_OF_MUTATED for outputs in ("clone", "alias")]
)
def test_compiled_function_returns_views_that_share_storage_of_a_mutated_input(compiled, device, name, outputs):
    """With dynamic shapes AOTAutograd regenerates a view of an input with the storage offset of the graph's output."""

    def function(x):
        x.add_(1)
        return ALIASES_OF_MUTATED[name](x)

    run = compiled(function, dynamic=True, outputs=outputs)
    with torch._dynamo.config.patch(capture_scalar_outputs=True), torch.no_grad():
        for rows in (5, 5, 4, 4, 6, 6):
            x = torch.rand(rows, 6, device=device)
            eager_x = x.clone()
            actual, expected = run(x), function(eager_x)
            assert torch.equal(x, eager_x)
            for result, expected_result in zip(actual, expected, strict=True):
                assert torch.equal(result, expected_result)
                assert share_storage(result, x) == share_storage(expected_result, eager_x)
                assert result.storage_offset() == expected_result.storage_offset()


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
@pytest.mark.parametrize("name", ALIASES)
def test_outputs_of_a_fast_path_alias_its_inputs_as_in_eager(device, inputs, outputs, name):
    config = config_for(device, inputs=inputs, outputs=outputs)
    run = cudagraphs.fast_path(lambda x: (ALIASES[name](x), x + 1), unsafe_skip_checks=True, config=config)
    for _ in range(4):
        x = torch.rand(4, 6, device=device)
        view, result = run(x)
        assert (view is x) == (name == "itself")
        assert share_storage(view, x)
        view.fill_(2)
        assert torch.equal(ALIASES[name](x), torch.full_like(ALIASES[name](x), 2))
        assert result.min() >= 1


def complex_of(x):
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


VIEWS_OF_OTHER_TYPES = {
    "viewed as int32": lambda x: x[1:].view(torch.int32),
    "viewed as int16": lambda x: x.view(torch.int16)[:, 2:],
    "viewed as float64": lambda x: x.view(torch.float64)[1:],
    "complex": complex_of,
    "conjugate": lambda x: complex_of(x)[1:].conj(),
    "imaginary part": lambda x: complex_of(x).imag,
    "imaginary part of a conjugate": lambda x: complex_of(x).conj().imag,
}


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", VIEWS_OF_OTHER_TYPES)
def test_fast_path_views_of_another_type_share_the_memory_of_the_argument(device, inputs, name, is_complex):
    """The argument is a part of a larger tensor, at another place in each call."""

    def function(x):
        return VIEWS_OF_OTHER_TYPES[name](torch.view_as_real(x).flatten(-2) if is_complex else x), x + 1

    run = cudagraphs.fast_path(function, unsafe_skip_checks=True, config=config_for(device, inputs=inputs))
    for number in range(5):
        whole = torch.rand(20, 4, device=device, dtype=torch.complex64 if is_complex else torch.float32)
        x = whole[2 * number :][:4]
        view, _ = run(x)
        expected, _ = function(x)
        assert share_storage(view, x)
        assert (view.dtype, view.is_conj(), view.is_neg()) == (expected.dtype, expected.is_conj(), expected.is_neg())
        torch.testing.assert_close(view, expected, rtol=0, atol=0, equal_nan=True)
        assert (view.stride(), view.storage_offset()) == (expected.stride(), expected.storage_offset())


LAYOUTS = {
    "strided": lambda x: (x + 1)[:, ::2],
    "expanded scalar": lambda x: x.sum().expand(4),
    "transposed": lambda x: (x + 1).t(),
    "column": lambda x: (x + 1)[:, 1],
    "expanded column": lambda x: (x + 1)[:, :1].expand(4, 5),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_cloned_outputs_have_the_strides_of_eager_outputs(compiled, device, name):
    run = compiled(LAYOUTS[name])
    for _ in range(4):
        x = torch.rand(4, 6, device=device)
        actual, expected = run(x), LAYOUTS[name](x)
        assert torch.equal(actual, expected)
        assert actual.stride() == expected.stride()


def test_fast_path_outputs_have_no_grad_fn_if_inputs_require_grad(device):
    run = cudagraphs.fast_path(torch.nn.Linear(6, 6).to(device), config=config_for(device, inputs="copy"))
    for _ in range(4):
        assert run(torch.ones(2, 6, device=device, requires_grad=True)).grad_fn is None


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_fast_path_views_of_a_self_overlapping_input_match_eager(device, inputs, outputs):
    config = config_for(device, inputs=inputs, outputs=outputs)
    run = cudagraphs.fast_path(lambda x: (x + 1, x.t(), x[1:]), unsafe_skip_checks=True, config=config)
    for number in range(4):
        x = (torch.arange(5.0, device=device) + number).unfold(0, 3, 1)
        result, transposed, rows = run(x)
        assert torch.equal(result, x + 1)
        assert torch.equal(transposed, x.t())
        assert torch.equal(rows, x[1:])


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
def test_results_that_are_passed_back_and_mutated_match_eager(device, outputs):
    """A replay copies what it mutated to the argument, which is the memory of its own result."""
    layer = torch.nn.Linear(3, 3).to(device).requires_grad_(False)

    def function(x):
        x.add_(1)
        return layer(x)

    run = cudagraphs.fast_path(function, config=config_for(device, outputs=outputs))
    run(torch.ones(2, 3, device=device)), run(torch.ones(2, 3, device=device))
    result = expected = torch.ones(2, 3, device=device)
    expected = expected.clone()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the fast path of function runs uncaptured: arguments share memory that it mutates")
        for _ in range(5):
            result, expected = run(result), function(expected)
            torch.testing.assert_close(result, expected)


class Subclass(torch.Tensor):
    pass


def test_fast_path_keeps_the_type_of_a_tensor_subclass_output(device):
    config = config_for(device)
    run = cudagraphs.fast_path(lambda x: (x + 1, x.as_subclass(Subclass)), unsafe_skip_checks=True, config=config)
    assert [type(run(torch.ones(2, device=device))[1]) for _ in range(4)] == [Subclass] * 4


def test_returned_views_of_a_mutated_input_are_not_copied(device):
    """For example slices of a KV cache that is written in place: AOTAutograd reads only their sizes, strides and offsets."""

    def function(x):
        x.add_(1)
        return x.unbind(0)

    run = torch.compile(function, backend=cudagraphs.backend(config_for(device, inputs="copy")))
    with torch.no_grad():
        for _ in range(4):
            x = torch.zeros(20, 8, device=device)
            assert all(share_storage(tensor, x) for tensor in run(x))
    with torch.no_grad():
        report = cudagraphs.explain(run, torch.zeros(20, 8, device=device))
    assert report.graphs[0].bytes_held <= 4 * x.nbytes
