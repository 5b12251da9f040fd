"""The CUDA graphs behind what was recorded: there to be looked at, and to be changed."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError


@pytest.fixture
def config(device):
    return cudagraphs.Config(runtime=RUNTIMES[device])


def parts(recorded):
    return [each.part for each in cudagraphs.raw_graphs(recorded)]


def test_each_recording_has_its_graphs(device, config):
    model, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    fast = cudagraphs.fast_path(model, x, config=config)
    assert parts(fast) == ["call"]
    assert parts(cudagraphs.fast_path(model, config=config)) == [], "none so far"
    step = cudagraphs.train_step(lambda x: model(x).sum(), model.parameters(), x, config=config)
    step(x), step(x)
    assert parts(step) == ["step"]
    assert parts(cudagraphs.graphed(model, (x,), config=config)) == ["call", "backward"]
    fast.close()
    assert parts(fast) == []


def test_buckets_and_parts_of_a_step_too(device):
    model, x = nn.Linear(3, 3).to(device), torch.ones(2, 3, device=device)
    bucketed = cudagraphs.fast_path(model, x, config=cudagraphs.Config(runtime=RUNTIMES[device], buckets={0: (2, 4)}))
    assert parts(bucketed) == ["call", "call"]
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    step = cudagraphs.train_step(lambda x: model(x).sum(), model.parameters(), x, config=config, accumulate=2)
    for _ in range(4):
        step(x)
    assert parts(step) == ["step", "step"]


@pytest.mark.parametrize("function", [len, nn.Linear(1, 1), torch.compile(torch.sin)])
def test_what_was_not_recorded_has_none(function):
    with pytest.raises(UsageError, match="was not recorded\n  give what graphed"):
        cudagraphs.raw_graphs(function)


def test_the_emulator_has_none():
    run = cudagraphs.fast_path(torch.sin, torch.ones(2), frozen=True, config=cudagraphs.Config(runtime="emulator"))
    (graph,) = cudagraphs.raw_graphs(run)
    for use in (graph.raw_cuda_graph, graph.instantiate):
        with pytest.raises(UsageError, match="runtime='cuda'"):
            use()


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("how", ["copy", "memcpy_node", "patch"])
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_changes_are_made_by_the_next_replays(device, how):
    driver = pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings")
    one, other = (torch.full((4,), value, device=device) for value in (1.0, 2.0))
    config = cudagraphs.Config(inputs=how)
    run = cudagraphs.fast_path(lambda x: one.clone() + x, torch.ones(4, device=device), frozen=True, config=config)
    kept = [torch.full((4,), float(value), device=device) for value in range(3)]
    assert [run(each)[0].item() for each in kept] == [1.0, 2.0, 3.0]
    (graph,) = cudagraphs.raw_graphs(run)
    assert copies_from(driver, graph, one, to=other) == 1
    graph.instantiate()
    assert [run(each)[0].item() for each in (*reversed(kept), kept[0])] == [4.0, 3.0, 2.0, 2.0]
    assert cudagraphs.stats().recordings == 1


def copies_from(driver, graph, source, *, to):
    """Have the copies of a tensor that a graph makes be those of another; gives how many there are."""
    raw, found = driver.CUgraph(graph.raw_cuda_graph()), 0
    _, _, count = driver.cuGraphGetNodes(raw, 0)
    for node in driver.cuGraphGetNodes(raw, count)[1][:count]:
        if driver.cuGraphNodeGetType(node)[1] == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY:
            params = driver.cuGraphMemcpyNodeGetParams(node)[1]
            if int(params.srcDevice) == source.data_ptr():
                params.srcDevice = to.data_ptr()
                assert int(driver.cuGraphMemcpyNodeSetParams(node, params)[0]) == 0
                found += 1
    return found
