"""Modes and transforms under hooks: no further graph where nothing is saved, and nothing is left disabled."""

import pytest
import torch
from support.saved_training import exact_hooks, gradients, graphs_saved

from dynx._torch.hooks import installed
from dynx.errors import UsageError

WEIGHT = torch.randn(16, 16, generator=torch.Generator().manual_seed(2))


def leaf():
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)


def model(x):
    return (x @ WEIGHT).sin().exp() * x


def are_enabled():
    return torch._C._autograd._saved_tensors_hooks_is_enabled()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("outer", ["hooks", "mode"])
@pytest.mark.parametrize("first", ["plain", "hooked"])
def test_no_further_graph_where_nothing_is_saved(mode, outer, first, count_compiles):
    """Evaluation under hooks was compiled again, into the same graph."""
    compiled, x = torch.compile(model, backend=count_compiles), leaf()

    def plain():
        with mode():
            compiled(x)

    def hooked():
        with exact_hooks() if outer == "hooks" else mode(), mode() if outer == "hooks" else exact_hooks():
            compiled(x)

    for call in (plain, hooked, plain) if first == "plain" else (hooked, plain, hooked):
        call()
    assert count_compiles.count == 1


def test_gradients_enabled_again_are_packed():
    """As in a closure that an optimizer calls."""
    compiled, x = torch.compile(model, backend="aot_eager"), leaf()
    with graphs_saved() as graphs, torch.no_grad(), exact_hooks():
        compiled(x)
        with torch.enable_grad():
            loss = compiled(x).sum()
    loss.backward()
    assert [graph.hooks for graph in graphs] == [True]
    torch.testing.assert_close(x.grad, torch.autograd.grad(model(again := leaf()).sum(), again)[0])


def nested(x):
    return torch.func.grad(lambda y: model(y).sum())(x).exp()


TRANSFORMS = {
    "grad": nested,
    "vjp": lambda x: torch.func.vjp(model, x)[1](x)[0],
    "jacrev": lambda x: torch.func.jacrev(lambda y: model(y).sum(0))(x),
    "grad in vmap": torch.vmap(torch.func.grad(lambda row: model(row).sum())),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_of_functions_are_refused_before_torch_disables_hooks(name):
    """torch raises too, and leaves saved-tensor hooks disabled in the thread."""
    with pytest.raises(UsageError, match=r"torch\.func\.grad"), exact_hooks():
        torch.compile(TRANSFORMS[name], backend="aot_eager")(leaf())
    assert are_enabled()
    assert installed() == ()
    torch.testing.assert_close(gradients(model, leaf(), hooks=exact_hooks()), gradients(model, leaf()))


def test_the_same_function_compiles_without_hooks():
    compiled = torch.compile(nested, backend="aot_eager")
    with pytest.raises(UsageError), exact_hooks():
        compiled(leaf())
    torch.testing.assert_close(compiled(leaf()), nested(leaf()))
    with pytest.raises(UsageError), exact_hooks(), torch.no_grad():
        torch.compile(nested, backend="aot_eager", dynamic=False)(leaf())
    assert are_enabled()


@pytest.mark.parametrize("compiles", [True, False], ids=["compiled", "eager"])
def test_vmap_and_jvp_run_under_hooks(compiles):
    for fn in (torch.vmap(lambda row: model(row)), lambda x: torch.func.jvp(model, (x,), (x,))[1]):
        torch._dynamo.reset()
        run = torch.compile(fn, backend="aot_eager") if compiles else fn
        torch.testing.assert_close(gradients(run, leaf(), hooks=exact_hooks()), gradients(fn, leaf()))
    assert are_enabled()
