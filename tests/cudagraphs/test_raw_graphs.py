"""`raw_graphs`: the CUDA graphs behind a captured function, to inspect and to change."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from support.devices import on_cuda
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError


def parts(recorded):
    return [graph.part for graph in cudagraphs.raw_graphs(recorded)]


def test_raw_graphs_returns_the_graphs_of_every_recording(device):
    config = config_for(device)
    model, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    fast = cudagraphs.fast_path(model, x, config=config)
    assert parts(fast) == ["call"]
    assert parts(cudagraphs.fast_path(model, config=config)) == [], "nothing was recorded yet"
    step = cudagraphs.train_step(lambda x: model(x).sum(), model.parameters(), x, config=config)
    step(x), step(x)
    assert parts(step) == ["step"]
    assert parts(cudagraphs.graphed(model, (x,), config=config)) == ["call", "backward"]
    fast.close()
    assert parts(fast) == []


def test_raw_graphs_returns_a_graph_for_each_bucket_and_accumulation_step(device):
    model, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    bucketed = cudagraphs.fast_path(model, x, config=config_for(device, buckets={0: (2, 4)}))
    assert parts(bucketed) == ["call", "call"]
    config = config_for(device)
    step = cudagraphs.train_step(lambda x: model(x).sum(), model.parameters(), x, config=config, accumulate=2)
    for _ in range(4):
        step(x)
    assert parts(step) == ["step", "step"]


@pytest.mark.parametrize("function", [len, nn.Linear(1, 1), torch.compile(torch.sin)])
def test_raw_graphs_raises_for_functions_that_are_not_captured(function):
    with pytest.raises(UsageError, match=r" has no recordings \(CUDA graphs\)\n  pass what graphed"):
        cudagraphs.raw_graphs(function)


def test_raw_graph_access_on_the_emulator_raises():
    run = cudagraphs.fast_path(torch.sin, torch.ones(2), unsafe_skip_checks=True, config=cudagraphs.Config(runtime="emulator"))
    (graph,) = cudagraphs.raw_graphs(run)
    for use in (graph.raw_cuda_graph, graph.instantiate):
        with pytest.raises(UsageError, match="runtime='cuda'"):
            use()


@on_cuda
@pytest.mark.parametrize("staging", ["copy", "memcpy_node", "patch"])
def test_edited_graph_nodes_take_effect_after_instantiate(device, staging):
    driver = pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings")
    source, replacement = (torch.full((4,), value, device=device) for value in (1.0, 2.0))
    config = cudagraphs.Config(inputs=staging)
    run = cudagraphs.fast_path(
        lambda x: source.clone() + x, torch.ones(4, device=device), unsafe_skip_checks=True, config=config
    )
    inputs = [torch.full((4,), float(value), device=device) for value in range(3)]
    assert [run(tensor)[0].item() for tensor in inputs] == [1.0, 2.0, 3.0]
    (graph,) = cudagraphs.raw_graphs(run)
    assert redirect_copies(driver, graph, source, to=replacement) == 1
    graph.instantiate()
    assert [run(tensor)[0].item() for tensor in (*reversed(inputs), inputs[0])] == [4.0, 3.0, 2.0, 2.0]
    assert cudagraphs.stats().recordings == 1


def redirect_copies(driver, graph, source, *, to):
    """Redirect the memcpy nodes that read `source` to read `to`; return how many there are."""
    raw, count_of_source = driver.CUgraph(graph.raw_cuda_graph()), 0
    _, _, count = driver.cuGraphGetNodes(raw, 0)
    for node in driver.cuGraphGetNodes(raw, count)[1][:count]:
        if driver.cuGraphNodeGetType(node)[1] == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY:
            params = driver.cuGraphMemcpyNodeGetParams(node)[1]
            if int(params.srcDevice) == source.data_ptr():
                params.srcDevice = to.data_ptr()
                assert int(driver.cuGraphMemcpyNodeSetParams(node, params)[0]) == 0
                count_of_source += 1
    return count_of_source
