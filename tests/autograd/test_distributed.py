"""DDP and FSDP on two ranks: captured gradients of DDP are those of eager autograd; those of FSDP are not reduced by torch."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dynx

PROGRAM = Path(__file__).with_name("ranks.py")
DEVICES = "cuda" if torch.cuda.device_count() > 1 else "cpu"


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def on_two_ranks(kind, backend):
    """Return the output of the program on each of two ranks."""
    address = port()
    command = [sys.executable, str(PROGRAM), kind]
    ranks = [
        subprocess.Popen([*command, str(rank), "2", address, DEVICES, backend], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    return [rank.communicate(timeout=240)[0] for rank in ranks]


@pytest.mark.slow  # starts two processes
@pytest.mark.parametrize("backend", ["None", "aot_eager", pytest.param("dynx_cudagraphs", marks=pytest.mark.gpu(devices=2))])
def test_ddp_on_two_ranks(backend):
    for rank, output in enumerate(on_two_ranks("ddp", backend)):
        assert f"rank {rank}: the same gradients" in output
        assert "1 captures, 3 calls, hooks ['post_acc_grad_hook', 'tensor_pre_hook']" in output
        assert "findings []" in output


@pytest.mark.slow  # starts two processes
def test_fsdp_on_two_ranks_has_a_finding_as_torch_reduces_no_gradients():
    for rank, output in enumerate(on_two_ranks("fsdp", "None")):
        assert f"rank {rank}: other gradients" in output
        assert "'DX717'" in output


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port()}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_reducer_of_ddp_in_cpp_is_refused_by_torch(one_rank):
    model = DistributedDataParallel(nn.Linear(4, 4))
    refused = pytest.raises(RuntimeError, match="python_reducer")
    with dynx.autograd.capture(backend=None) as log, refused:
        model(torch.ones(2, 4)).sum().backward()
    assert (len(log), log.troubles) == (0, ())
    with dynx.autograd.capture(backend=None) as log:  # nothing is left of the pass that failed
        nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    assert len(log) == 1
