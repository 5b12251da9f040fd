"""`dynx.check` and `watch.side_effects` with CUDA tensors."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dynx
from dynx import cudagraphs
from dynx.errors import UsageError

pytestmark = pytest.mark.gpu


def x(*shape):
    return torch.randn(*(shape or (16, 32)), generator=torch.Generator().manual_seed(0)).cuda()


def model_of():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 32)).cuda()


def training():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(value):
        optimizer.zero_grad()
        loss = model(value).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (x(),)


def in_place():
    cache = torch.zeros(4, 32, device="cuda")

    def write(position, value):
        cache[position] = value[0]
        value.mul_(2)
        return cache.sum(0), cache[1:]

    return write, (torch.tensor(2, device="cuda"), x())


def autocast():
    model = model_of()

    def forward(value):
        with torch.autocast("cuda", torch.bfloat16):
            return model(value)

    return forward, (x(),)


def drawing():
    return (lambda value: (nn.functional.dropout(value, 0.5), torch.rand(3, device="cuda"), torch.rand(3))), (x(),)


def checkpointed():
    model = model_of()
    return (lambda value: checkpoint(model, value, use_reentrant=False)), (x().requires_grad_(),)


def two_devices():
    return (lambda value, other: (value.cpu() + other, other.cuda() * 2)), (x(2, 2), torch.ones(2, 2))


def streams():
    side = torch.cuda.Stream()

    def forward(value):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = value * 2
        torch.cuda.current_stream().wait_stream(side)
        return result + 1

    return forward, (x(),)


PROGRAMS = {
    "module": lambda: (model_of(), (x(),)),
    "eval": lambda: (model_of().eval(), (x(),)),
    "half": lambda: (model_of().eval().half(), (x().half(),)),
    "bfloat16": lambda: (model_of().bfloat16(), (x().bfloat16(),)),
    "attention": lambda: (nn.functional.scaled_dot_product_attention, (x(1, 2, 8, 16), x(1, 2, 8, 16), x(1, 2, 8, 16))),
    "transformer": lambda: (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, device="cuda"), (x(2, 8, 32),)),
    "convolution": lambda: (nn.Conv2d(3, 8, 3, device="cuda").to(memory_format=torch.channels_last), (x(2, 3, 16, 16),)),
    "embedding": lambda: (nn.Embedding(16, 8, device="cuda"), (torch.arange(6, device="cuda"),)),
    "training": training,
    "in_place": in_place,
    "autocast": autocast,
    "drawing": drawing,
    "checkpointed": checkpointed,
    "two_devices": two_devices,
    "streams": streams,
}


# streams of the user only by Dynamo: what compilers of kernels make of them has not been tried
CASES = [
    (name, backend) for name in PROGRAMS for backend in ("eager", "aot_eager", "inductor")[: 1 if name == "streams" else 3]
]


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_programs_that_do_the_same(name, backend):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    report = dynx.check(fn, *args, backend=backend)
    report.assert_ok()
    assert not report.shared


@pytest.mark.parametrize("inner", ["eager", "inductor"])
def test_programs_in_cuda_graphs(inner):
    torch.manual_seed(0)
    backend = cudagraphs.backend(cudagraphs.Config(inner=inner))
    for name in ("module", "eval", "attention", "in_place"):
        fn, args = PROGRAMS[name]()
        dynx.check(fn, *args, backend=backend, calls=6).assert_ok()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_the_caller_keeps_its_tensors_and_its_random_numbers(backend):
    model, value = model_of(), x()
    before = [tensor.clone() for tensor in (*model.parameters(), *model.buffers(), value)]
    torch.cuda.manual_seed(3)
    expected = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    dynx.check(model, value, backend=backend).assert_ok()
    assert torch.equal(torch.rand(4, device="cuda"), expected)
    after = [*model.parameters(), *model.buffers(), value]
    assert all(map(torch.equal, before, after))
    assert all(parameter.grad is None for parameter in model.parameters())


def wrong_on_cuda(gm, _):
    return lambda *args: [out * 1.001 if out.is_cuda else out for out in gm(*args)]


def test_a_wrong_number_is_found_and_named():
    report = dynx.check(lambda value: (value.sin(), value.cpu()), x(), backend=wrong_on_cuda, bisect=True)
    assert [diff.path for diff in report.diffs] == ["result[0]"]
    assert report.stage == "wrong_on_cuda"
    assert "sin" in report.node


def test_random_numbers_that_a_backend_does_not_draw():
    def constant(gm, _):
        return lambda *args: [torch.full((3,), 0.5, device="cuda")]

    kinds = {diff.kind for diff in dynx.check(lambda value: torch.rand(3, device="cuda"), x(), backend=constant).diffs}
    assert kinds == {"tensor", "random"}


def test_a_result_on_another_device():
    def on_cpu(gm, _):
        return lambda *args: [out.cpu() for out in gm(*args)]

    (diff,) = dynx.check(lambda value: value + 1, x(), backend=on_cpu, calls=1).diffs
    assert (diff.path, "cpu" in diff.compiled) == ("result", True)


def test_a_fork_is_refused():
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES="):
        dynx.check(lambda value: value + 1, x(), isolate="fork")


def test_side_effects_with_cuda_tensors():
    def forward(cache, kept, value):
        kept.append(value * 2)
        cache.move_to_end("a")
        return value + 1

    with dynx.watch() as watch:
        torch.compile(forward, backend="inductor")(OrderedDict(a=1, b=2), [], x())
    (frame,) = watch.side_effects
    assert [effect.source for effect in frame.dropped] == ["L['cache']"]
    (kept,) = (effect for effect in frame.effects if effect.emitted)
    assert "16" in kept.after
