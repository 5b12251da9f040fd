"""Results that lie in arguments or parameters, and results that are copied with their layout."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES

from dynx import cudagraphs

VIEWS = {
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(0)[1],
    "slice": lambda x: x[1:],
    "transposed": lambda x: x[:, 1:].t(),
    "itself": lambda x: x,
    "detached": lambda x: x.detach(),
}


def share(one, other):
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


NOTHING = pytest.param("itself", marks=pytest.mark.uncaptured)  # is no graph


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", [NOTHING, *(each for each in VIEWS if each != "itself")])
def test_a_compiled_graph_gives_views_of_its_arguments(compiled, device, name, grad):
    run = compiled(VIEWS[name])
    for rows in (4, 4, 5, 5, 6, 6, 6, 4):  # of which the later ones have a size that is a number of the graph
        x = torch.rand(rows, 6, device=device, requires_grad=grad)
        with torch.set_grad_enabled(grad):
            found = run(x)
        assert torch.equal(found, VIEWS[name](x))
        assert share(found, x)


CHANGED = {
    "chunk": lambda x: (x.chunk(2)[1],),
    "transposed": lambda x: (x[1:].t(), x[1:].expand(2, -1, -1)),
    "overlapping": lambda x: (x[1:], x[2:]),
    "read as integers": lambda x: (x[1:].view(torch.int32), x[1:, 2:4]),
    "conjugated": lambda x: (torch.view_as_complex(x.view(x.shape[0], -1, 2)).conj().imag,),
    "complex": lambda x: (torch.view_as_complex(x.view(x.shape[0], -1, 2))[1:],),
    "negative": lambda x: (torch.view_as_complex(x.view(x.shape[0], -1, 2))[1:].conj(), x[x.shape[0] :]),
    "divided": lambda x: (x[1:], x * x.cos().sin().exp().sum().item()),
}


@pytest.mark.parametrize("outputs", ["clone", "alias"])
@pytest.mark.parametrize("name", CHANGED)
def test_views_of_an_argument_that_was_changed(compiled, device, name, outputs):
    """Torch: where sizes are symbols, AOTAutograd makes them with the storage offset of what the graph gives."""

    def function(x):
        x.add_(1)
        return CHANGED[name](x)

    run = compiled(function, dynamic=True, outputs=outputs)
    with torch._dynamo.config.patch(capture_scalar_outputs=True), torch.no_grad():
        for rows in (5, 5, 4, 4, 6, 6):
            x = torch.rand(rows, 6, device=device)
            other = x.clone()
            found, expected = run(x), function(other)
            assert torch.equal(x, other)
            for mine, theirs in zip(found, expected, strict=True):
                assert torch.equal(mine, theirs)
                assert share(mine, x) == share(theirs, other)
                assert mine.storage_offset() == theirs.storage_offset()


@pytest.mark.parametrize("outputs", ["clone", "alias", "static"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_fast_path_gives_views_of_its_arguments(device, inputs, outputs, name):
    config = cudagraphs.Config(runtime=RUNTIMES[device], inputs=inputs, outputs=outputs)
    run = cudagraphs.fast_path(lambda x: (VIEWS[name](x), x + 1), frozen=True, config=config)
    for _ in range(4):
        x = torch.rand(4, 6, device=device)
        view, more = run(x)
        assert (view is x) == (name == "itself")
        assert share(view, x)
        view.fill_(2)
        assert torch.equal(VIEWS[name](x), torch.full_like(VIEWS[name](x), 2))
        assert more.min() >= 1


LAYOUTS = {
    "gaps": lambda x: (x + 1)[:, ::2],
    "repeated": lambda x: x.sum().expand(4),
    "transposed": lambda x: (x + 1).t(),
    "column": lambda x: (x + 1)[:, 1],
    "both": lambda x: (x + 1)[:, :1].expand(4, 5),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_copies_are_laid_out_as_what_they_are_copies_of(compiled, device, name):
    run = compiled(LAYOUTS[name])
    for _ in range(4):
        x = torch.rand(4, 6, device=device)
        found, expected = run(x), LAYOUTS[name](x)
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()


def test_an_argument_that_needs_a_gradient_is_copied_where_gradients_are_on(device):
    run = cudagraphs.fast_path(
        torch.nn.Linear(6, 6).to(device), config=cudagraphs.Config(runtime=RUNTIMES[device], inputs="copy")
    )
    for _ in range(4):
        assert run(torch.ones(2, 6, device=device, requires_grad=True)).grad_fn is None


@pytest.mark.parametrize("outputs", ["clone", "alias"])
def test_views_of_what_overlaps_itself(device, inputs, outputs):
    config = cudagraphs.Config(runtime=RUNTIMES[device], inputs=inputs, outputs=outputs)
    run = cudagraphs.fast_path(lambda x: (x + 1, x.t(), x[1:]), frozen=True, config=config)
    for number in range(4):
        x = (torch.arange(5.0, device=device) + number).unfold(0, 3, 1)
        more, transposed, rest = run(x)
        assert torch.equal(more, x + 1)
        assert torch.equal(transposed, x.t())
        assert torch.equal(rest, x[1:])


class Named(torch.Tensor):
    pass


def test_views_of_another_class(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    run = cudagraphs.fast_path(lambda x: (x + 1, x.as_subclass(Named)), frozen=True, config=config)
    assert [type(run(torch.ones(2, device=device))[1]) for _ in range(4)] == [Named] * 4


def test_many_views_of_an_argument_that_was_changed_are_no_copies(device):
    """Such as the parts of a cache that is written to: the layout of each is all that is asked for."""

    def function(x):
        x.add_(1)
        return x.unbind(0)

    run = torch.compile(function, backend=cudagraphs.backend(cudagraphs.Config(runtime=RUNTIMES[device], inputs="copy")))
    with torch.no_grad():
        for _ in range(4):
            x = torch.zeros(20, 8, device=device)
            assert all(share(each, x) for each in run(x))
    with torch.no_grad():
        report = cudagraphs.explain(run, torch.zeros(20, 8, device=device))
    assert report.graphs[0].bytes_held <= 4 * x.nbytes
