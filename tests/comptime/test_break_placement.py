"""`ctx.graph_break()` at any statement of generated functions splits the graph exactly there and keeps the result."""

from __future__ import annotations

import linecache
import random

import pytest
import torch

from dynx.comptime import probe


def generate(seed):
    """Return the source of a random program: each statement, except headers, is one operation with a unique operand."""
    rng = random.Random(seed)
    numbers = iter(range(1, 1000))
    helpers, body = [], []

    def operation():
        return f"x = x * 1.{next(numbers):03}"

    def block(out, indent, depth):
        for _ in range(rng.randint(2, 4)):
            kind = rng.choice(["op", "op", "op", "if", "with", "call"]) if depth < 3 else "op"
            if kind == "op":
                out.append(indent + operation())
            elif kind == "if":
                out.append(f"{indent}if flag is {rng.choice(['True', 'False'])}:")
                block(out, indent + "    ", depth + 1)
                out.append(f"{indent}else:")
                block(out, indent + "    ", depth + 1)
            elif kind == "with":
                out.append(f"{indent}with torch.no_grad():")
                block(out, indent + "    ", depth + 1)
            else:
                name = f"helper{len(helpers)}"
                helpers.append(None)
                helper = [f"def {name}(x, flag):"]
                block(helper, "    ", depth + 1)
                helpers[int(name[6:])] = [*helper, "    return x"]
                out.append(f"{indent}x = {name}(x, flag)")

    body.append("def f(x, flag):")
    block(body, "    ", 0)
    lines = [line for helper in helpers for line in helper] + [*body, "    return x"]
    return "\n".join(lines)


def operands(graphs):
    """Return the operands of the operations of each graph."""
    calls = [[node for node in graph.nodes if node.op == "call_function" and len(node.args) == 2] for graph in graphs]
    return [[f"{node.args[1]:.3f}" for node in nodes] for nodes in calls]


CASES = [*((seed, "hook") for seed in range(50)), *((seed, "rewrite") for seed in range(12))]


@pytest.mark.parametrize(("seed", "mode"), CASES)
def test_ctx_graph_break_splits_the_graph_at_the_probed_statement(seed, mode, tmp_path):
    source = generate(seed)
    file = str(tmp_path / "generated.py")
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"torch": torch}
    exec(compile(source, file, "exec"), namespace)
    f, x = namespace["f"], torch.ones(2)
    expected = f(x, flag=True)

    def traced_operands():
        graphs = []

        def backend(graph_module, example_inputs):
            graphs.append(graph_module.graph)
            return graph_module.forward

        torch._dynamo.reset()
        result = torch.compile(f, backend=backend)(x, flag=True)
        assert torch.equal(result, expected)
        return operands(graphs)

    (whole,) = traced_operands()
    torch._dynamo.reset()
    chosen = random.Random(seed).choice(whole)
    line = next(n for n, text in enumerate(source.splitlines(), 1) if text.strip().endswith(f"* {chosen}"))
    with probe(f"{file}:{line}", do=lambda ctx: ctx.graph_break(), mode=mode) as armed:
        parts = traced_operands()
    assert armed.hits == 1
    assert [operand for part in parts for operand in part] == whole
    assert whole.index(chosen) == 0 or chosen in [part[0] for part in parts]
    assert traced_operands() == [whole], "a removed probe leaves nothing behind"
