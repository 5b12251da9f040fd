"""Weight-only int8 linear layers on a custom kernel; the engine compiles the whole MLP with fullgraph=True like vLLM does."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@torch.library.custom_op("wq8::linear", mutates_args=())
def wq8_linear(x: Tensor, qweight: Tensor, scales: Tensor) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty(rows.shape[0], qweight.shape[0], dtype=x.dtype)
    for start in range(0, qweight.shape[0], 16):
        stop = start + 16
        tile = qweight[start:stop].to(x.dtype) * scales[start:stop, None]
        out[:, start:stop] = rows @ tile.T
    return out.reshape(*x.shape[:-1], qweight.shape[0])


@torch.library.custom_op("wq8::silu_and_mul", mutates_args=())
def silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


@silu_and_mul.register_fake
def _(x):
    return x.new_empty(*x.shape[:-1], x.shape[-1] // 2)


class WQ8Linear(nn.Module):
    def __init__(self, qweight, scales):
        super().__init__()
        self.register_buffer("qweight", qweight)
        self.register_buffer("scales", scales)

    @classmethod
    def from_float(cls, linear):
        weight = linear.weight.detach()
        scales = weight.abs().amax(dim=1) / 127.0
        return cls((weight / scales[:, None]).round().to(torch.int8), scales)

    def forward(self, x):
        return torch.ops.wq8.linear(x, self.qweight, self.scales)


class GatedMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.down(silu_and_mul(self.gate_up(x)))


def quantize_(module):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, WQ8Linear.from_float(child))
        else:
            quantize_(child)
    return module


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(GatedMLP(32, 48) for _ in range(3))).eval()
    tokens = torch.randn(2, 5, 32)
    with torch.inference_mode():
        reference = model(tokens)
        engine = torch.compile(quantize_(model), backend="aot_eager", fullgraph=True)
        out = engine(tokens)
    error = (out - reference).norm() / reference.norm()
    print(f"relative error {error.item():.4f} checksum {out.sum().item():.3f}")


if __name__ == "__main__":
    main()
