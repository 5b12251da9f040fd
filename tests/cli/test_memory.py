"""`dynx memory script.py::function`: what the graphs of one function of a program saved for backward."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from torch import nn
from dynx import saved

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))

model = Block()
compiled = torch.compile(model, backend="aot_eager")
other = torch.compile(lambda x: x.exp() * x.sin(), backend="aot_eager")

def step(x):
    with saved.hooks(saved.rule(saved.codecs.bf16())):
        loss = compiled(x).square().mean()
    loss.backward()

for _ in range(2):
    step(torch.randn(8, 16))
other(torch.randn(4, requires_grad=True))
print("trained", *sys.argv[1:])
if sys.argv[1:] == ["fail"]:
    raise ValueError("after training")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def memory(*arguments):
    return subprocess.run([sys.executable, "-m", "dynx", "memory", *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step", "compiled", "model", "Block.forward"])
def test_graphs_of_a_function(script, name):
    """A training step has the graphs of the model that it calls."""
    done = memory("--json", f"{script}::{name}")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (graph,) = report["graphs"]
    assert {tensor.get("codec") for tensor in graph["tensors"] if tensor["kind"] == "activation"} == {"bf16"}
    assert report["rules"] == ["rule(bf16)"]
    assert "trained" in done.stderr


@pytest.mark.slow
def test_screen(script):
    done = memory(f"{script}::step")
    assert done.stdout.startswith("trained\n")
    assert "of activations, stored in" in done.stdout
    assert "bf16" in done.stdout


@pytest.mark.slow
def test_a_function_without_graphs(script):
    done = memory(f"{script}::missing")
    assert done.returncode == 2
    assert "compiled no graph of missing that saves tensors" in done.stderr
    assert "Block.forward" in done.stderr


@pytest.mark.slow
def test_a_program_that_fails_is_reported_up_to_there(script):
    done = memory(f"{script}::step", "fail")
    assert done.returncode == 1
    assert "of activations" in done.stdout
    assert done.stderr.rstrip().endswith("ValueError: after training")


def test_a_target_without_a_function(script):
    done = memory(script)
    assert done.returncode == 2
    assert "dynx memory" in done.stderr
