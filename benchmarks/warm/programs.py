"""Programs for `benchmarks/warm_start.py`: a function to compile, its calls in the first process, and those in the second.

`python benchmarks/warm/programs.py NAME RUN WITH` runs one, and prints its compilations, the lookups in torch's caches and the
seconds of its calls as JSON. RUN is 0 or 1; WITH is `torch`, or the path of a profile of dynx.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack

import torch
from torch._dynamo.utils import counters

ones = torch.ones


def bias_rows():  # bias.size(0) and ids.size(0) want the same number
    def total(bias, ids):
        rows, out = bias.size(0), ids * 2.0  # bias is used first, and takes the number
        for row in range(rows):
            out = out + bias[row]
        return out.sin()

    return total, [(ones(4), ones(6, 3)), (ones(4), ones(7, 3)), (ones(5), ones(9, 3))], [(ones(4), ones(8, 3))]


def two_dims():  # a.size(0) and a.size(1) want the same number
    def total(a):
        out = a[0].cos()
        for row in range(a.size(0)):
            out = out + a[row]
        return out

    return total, [(ones(3, 6),), (ones(3, 7),), (ones(4, 9),)], [(ones(3, 8),)]


def steps():  # the number k and b.size(2) want the same number
    def total(b, k):
        out = torch.zeros(())
        for step in range(k):
            out = out + step
        return torch.softmax(b + out, -1)

    return total, [(ones(2, 3, 6), 4), (ones(2, 3, 7), 4), (ones(2, 3, 9), 5)], [(ones(2, 3, 8), 4)]


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))

    def forward(self, d, pos):
        rows, x = d.size(0), pos
        for row in range(rows):
            x = x + d[row]
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x))
        return x


def training():  # forward and backward
    model = Layers()

    def step(d, pos):
        return model(d, pos).sum()

    calls = lambda *sizes: [(ones(rows, 16), ones(length, 16)) for rows, length in sizes]  # noqa: E731
    return step, calls((2, 6), (2, 7), (3, 9)), calls((2, 8), (2, 10), (2, 12))


def nonzero():  # a runtime assertion that the other process lacks
    torch._dynamo.config.capture_dynamic_output_shape_ops = True

    def total(c, y):
        found, out = torch.nonzero(c), y * 2
        for row in range(c.size(0)):
            out = out + c[row]
        return out.sum() + found.sum()

    return total, [(ones(4), ones(6)), (ones(4), ones(7)), (ones(5), ones(9))], [(ones(4), ones(8))]


def nonzero_again():  # begins with the value that the last graph of the first process had
    function, first, _ = nonzero()
    return function, first, [(ones(5), ones(8)), (ones(4), ones(8))]


def over_marked():  # a loop over a size that changes together with others: no graph without it
    def total(xs, y, z):
        for row in range(xs.shape[0]):
            z = z + xs[row]
        return z, y.t() @ y

    calls = [(ones(rows, 4), ones(m, 3), ones(n, 4)) for rows, m, n in ((3, 6, 5), (4, 7, 8), (5, 9, 10))]
    return total, calls, [*calls[1:], calls[0]]


def train_width():  # the first batch has the width that the slice takes
    layer = torch.nn.Linear(16, 4)

    def step(x):
        return layer(x[:, :16]).sum()

    calls = [(ones(rows, width),) for rows, width in ((8, 16), (8, 20), (6, 24))]
    return step, calls, calls


def two_dims_again():  # another value of the size that the loop needs
    function, first, _ = two_dims()
    return function, first, [(ones(4, 8),), (ones(3, 8),)]


def sequential():  # torch wraps it in a closure
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    return model, [(ones(4, 16),), (ones(6, 16),)], [(ones(5, 16),)]


def attention():  # batch and length change
    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    calls = lambda *sizes: [(ones(batch, 2, length, 8),) * 3 for batch, length in sizes]  # noqa: E731
    return (
        attend,
        calls((2, 8), (2, 12), (3, 9)),
        calls(
            (4, 10),
        ),
    )


def _language_model(model, *, batch=2):
    def logits(ids):
        return model(ids).last_hidden_state

    ids = lambda *lengths: [(torch.zeros(batch, length, dtype=torch.long),) for length in lengths]  # noqa: E731
    return logits, ids(8, 12, 10), ids(9, 14)


def gpt2():
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=64, bos_token_id=1, eos_token_id=1)
    return _language_model(GPT2Model(config).eval())


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=64)
    return _language_model(BertModel(config).eval())


def llama():
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=64)
    return _language_model(LlamaModel(config).eval())


PROGRAMS = (
    bias_rows, two_dims, two_dims_again, steps, training, nonzero, nonzero_again, over_marked, train_width,
    sequential, attention, gpt2, bert, llama,
)  # fmt: skip


def main(name: str, run: int, profile: str) -> None:
    torch.manual_seed(0)
    function, *calls = next(program for program in PROGRAMS if program.__name__ == name)()
    with ExitStack() as stack:
        if profile != "torch":
            from dynx import pgo

            stack.enter_context(pgo.warm_start(profile))
        torch.compile(lambda x: x @ x)(ones(2, 2))  # starts inductor
        counters.clear()
        begin = time.perf_counter()
        compiled = torch.compile(function)
        for args in calls[run]:
            out = compiled(*args)
            if isinstance(out, torch.Tensor) and out.requires_grad and out.dim() == 0:
                out.backward()
        seconds = time.perf_counter() - begin
    fx, aot = counters["inductor"], counters["aot_autograd"]
    found = {
        "compiles": counters["stats"]["unique_graphs"],
        "fx_hits": fx["fxgraph_cache_hit"],
        "fx_misses": fx["fxgraph_cache_miss"],
        "aot_hits": aot["autograd_cache_hit"],
        "aot_misses": aot["autograd_cache_miss"],
        "seconds": seconds,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
