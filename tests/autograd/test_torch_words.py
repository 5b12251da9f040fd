"""dynx names the node that torch's own logging names, without it: with its logger, torch fails where it runs without one."""

from __future__ import annotations

import random
import re
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
import torch
import yaml
from backward_models import Model, add_hooks, loss_of

import dynx
from dynx._torch.autograd.nodes import is_symbolic

_NODE = re.compile(r"new autograd node: \S+ \(NodeCall (\d+)\)")


class Logger:
    def debug(self, *args):
        pass


@contextmanager
def logger_of_torch():
    logger = Logger()  # C++ does not keep it alive
    torch._C._dynamo.compiled_autograd.set_verbose_logger(logger)
    try:
        yield
    finally:
        torch._C._dynamo.compiled_autograd.set_verbose_logger(None)


def train(seed):
    """Run passes of a few random models that differ in sizes, hooks, gradients, trained parameters and constants."""
    choice = random.Random(seed)
    seeds = [choice.randrange(10**6) for _ in range(3)]
    model = Model(random.Random(seeds[0]))
    for _ in range(6):
        change = choice.choice(["size", "hooks", "freeze", "zero", "loss", "exponent", "model"])
        if change == "model":
            model = Model(random.Random(choice.choice(seeds)))
        if change == "freeze":
            parameter = choice.choice(list(model.parameters()))
            parameter.requires_grad_(not parameter.requires_grad)
        if change == "zero":
            model.zero_grad()
        if change == "hooks":
            with suppress(RuntimeError):  # for a parameter that is not trained
                add_hooks(model, random.Random(choice.randrange(3)), [])
        loss = loss_of(model, random.Random(choice.choice(seeds)), torch.randn(choice.choice([4, 4, 4, 5]), 6), [])
        (loss.pow(choice.choice([2, 3])) if change == "exponent" else loss).backward()


@pytest.mark.parametrize("seed", range(8))
def test_the_same_node_as_in_torchs_words(seed):
    torch.manual_seed(seed)
    torch._dynamo.reset()
    with dynx.autograd.capture(backend=None) as log, logger_of_torch():
        train(seed)
    assert len(log) > 1
    for reason in [capture.reason for capture in log[1:]]:
        named = _NODE.search(reason.torch)
        if named is None:
            assert "changed tensor shapes" in reason.torch
            assert reason.kind == "shape"
        else:
            assert int(named[1]) == (reason.node.number if reason.node is not None else 0), reason


def materialized():
    """Run a pass whose nodes are the first ones of another pass: no node of it is new."""
    x, a = torch.tensor(0.5, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    gradient = torch.autograd.grad(x * a, x, create_graph=True)
    options = {"create_graph": True, "allow_unused": True}
    torch.autograd.grad(gradient, x, **options)
    second = torch.autograd.grad(gradient, x, materialize_grads=True, **options)
    return torch.autograd.grad(second, x, materialize_grads=True)


def failed_before():
    """Run a pass that was captured before, but whose compilation failed."""
    w = torch.ones(3, requires_grad=True)
    with suppress(ZeroDivisionError), torch._dynamo.compiled_autograd._enable(lambda graph: 1 / 0):
        w.sin().sum().backward()
    w.sin().sum().backward()


@pytest.mark.parametrize("program", [materialized, failed_before])
@pytest.mark.parametrize("observed", [nullcontext, dynx.watch, logger_of_torch])
def test_an_observer_makes_no_pass_fail(program, observed):
    torch._dynamo.reset()
    fails = pytest.raises(RuntimeError, match="INTERNAL ASSERT FAILED") if observed is logger_of_torch else nullcontext()
    with observed() as watch, torch._dynamo.compiled_autograd._enable(lambda graph: graph), fails:
        program()
    assert observed is not dynx.watch or (not watch.troubles and watch.backward_captures)


def test_numbers_that_may_be_symbolic_are_those_of_torch():
    torchgen = pytest.importorskip("torchgen", reason="torch was installed without torchgen")
    functions = yaml.safe_load((Path(torchgen.__file__).parent / "packaged/autograd/derivatives.yaml").read_text())
    found = {True: set(), False: set()}
    for function in functions:
        formulas = " ".join(str(value) for key, value in function.items() if key != "name")
        operator, _, arguments = function["name"].partition("->")[0].partition("(")
        node = f"{operator.partition('.')[0].replace('_', '')}Backward0"
        for kind, name in re.findall(r"\b((?:Sym)?[Ii]nt)(?:\[\d*\])?\??\s+(\w+)", arguments):
            if re.search(rf"\b{name}\b", formulas):
                found[kind == "SymInt"].add((node, name))
    assert len(found[True]) > 50
    assert all(is_symbolic(*each) for each in found[True])
    wrong = {each for each in found[False] - found[True] if is_symbolic(*each)}
    assert not wrong


def torchs_nodes(capture):
    """Return by number the names that torch writes into the stack traces of the graph's nodes."""
    traces = [re.search(r"(\S+) \(NodeCall (\d+)\)", node.stack_trace or "") for node in capture.graph.graph.nodes]
    return {int(found[2]): found[1] for found in traces if found is not None}


@pytest.mark.parametrize("seed", range(12))
def test_nodes_of_a_pass_with_inputs_are_those_that_torch_runs(seed):
    choice = random.Random(seed)
    torch.manual_seed(seed)
    torch._dynamo.reset()
    model = Model(random.Random(choice.randrange(10**6)))
    outputs = []
    for module in model.children():
        module.register_forward_hook(lambda module, args, output: outputs.append(output))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with dynx.autograd.capture(backend=None) as log:
        for number in range(4):
            outputs.clear()
            loss = loss_of(model, random.Random(seed), torch.randn(4, 6), [])
            known = [each for each in outputs if isinstance(each, torch.Tensor) and each.requires_grad]
            inputs = choice.sample(trained, min(2, len(trained))) + choice.sample(known, min(1, len(known)))
            if number % 2:
                loss.backward(inputs=[each for each in inputs if each.is_leaf] or trained[:1])
            else:
                torch.autograd.grad(loss, inputs, allow_unused=True)
    assert not log.troubles
    for capture in log:
        names = {node.number: node.name for node in capture.nodes}
        found = torchs_nodes(capture)
        assert len(found) > 1
        assert {number: names.get(number, "").rpartition("::")[2] for number in found} == {
            number: name.rpartition("::")[2] for number, name in found.items()
        }
        assert max(names) == max(found)
