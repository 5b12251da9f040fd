"""Decoding of a Llama with 16 layers, a token at a time: our ways and torch's, beside a bare replay of the same kernels.

All rows decode the same tokens from the same prompt, in turn, in rounds, so that a moment in which the machine is slow falls on
all of them. Bound: at most 1.03 times the time of a bare replay, of eager kernels or of inductor's.

python benchmarks/decoding.py [--out benchmarks/results/decoding-h100.json] [--rounds 15] [--layers 16]
Exits with 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pairs import Measured, bootstrap, report
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from dynx import cudagraphs

TOKENS, CACHE = 64, 512
ANY = 1000.0  # rows of torch have no bound
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Decoder(nn.Module):
    """Returns the token that follows a token at a position; both have one element."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model, self.cache = model, StaticCache(config=model.config, max_cache_len=CACHE)
        config = model.config
        heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(1, heads, width, torch.bfloat16, torch.device("cuda"))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        for layer in self.cache.layers:
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):  # transformers 5
                layer.cumulative_length.copy_(position[0])
        mask = (torch.arange(CACHE, device="cuda") <= position)[None, None, None]
        out = self.model(
            token, position_ids=position[None], attention_mask=mask, past_key_values=self.cache, cache_position=position
        )
        return out.logits[:, -1:].argmax(-1)


def bare_replay(step: Step) -> Step:
    """Capture with torch alone: no checks, no copies of results."""
    token, position = torch.zeros(1, 1, dtype=torch.long, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step(token, position)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step(token, position)

    def replay(new_token: torch.Tensor, new_position: torch.Tensor) -> torch.Tensor:
        token.copy_(new_token)
        position.copy_(new_position)
        graph.replay()
        return out

    return replay


def decode(step: Step) -> tuple[float, torch.Tensor]:
    """Decode TOKENS tokens; return seconds for a token, and the tokens."""
    token = torch.full((1, 1), 7, device="cuda")
    positions = [torch.tensor([number], device="cuda") for number in range(TOKENS)]
    tokens = []
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for position in positions:
        torch.compiler.cudagraph_mark_step_begin()
        token = step(token, position).clone()
        tokens.append(token)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / TOKENS, torch.cat(tokens, 1)


def rows(model: LlamaForCausalLM) -> dict[str, Step]:
    """Return a step for each row, with a cache of its own."""

    def compiled(**options: object) -> Step:
        torch._dynamo.reset()
        return torch.compile(Decoder(model), **options)  # type: ignore[call-overload]

    ours = cudagraphs.Config(inner="inductor")
    return {
        "eager": Decoder(model),
        "inductor": compiled(),
        "inductor, mode='reduce-overhead'": compiled(mode="reduce-overhead"),
        "bare replay, eager kernels": bare_replay(Decoder(model)),
        "bare replay, inductor's kernels": bare_replay(compiled()),
        "fast_path, eager kernels": cudagraphs.fast_path(Decoder(model)),
        "fast_path, inductor's kernels": cudagraphs.fast_path(compiled()),
        "backend='dynx_cudagraphs', inductor's kernels": compiled(backend=cudagraphs.backend(ours)),
    }


BARE = {
    "fast_path, eager kernels": "bare replay, eager kernels",
    "fast_path, inductor's kernels": "bare replay, inductor's kernels",
    "backend='dynx_cudagraphs', inductor's kernels": "bare replay, inductor's kernels",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=options.layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=CACHE,
    )
    model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
    with torch.no_grad():
        steps = rows(model)
        for name, step in steps.items():
            tokens = [decode(step)[1] for _ in range(3)][-1]
            if name == "eager":
                expected = tokens
            print(f"{name}: {int((tokens == expected).sum())} of {TOKENS} tokens as eager", flush=True)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for number in range(options.rounds):
            for name in list(steps)[:: 1 if number % 2 else -1]:
                times[name].append(decode(steps[name])[0])
    for name, seconds in times.items():
        print(f"{name:<48} {1 / statistics.median(seconds):8.0f} tokens/s")
    measured = []
    for name in steps:
        bare = BARE.get(name, "bare replay, inductor's kernels")
        ratios = [mine / other for mine, other in zip(times[name], times[bare], strict=True)]
        low, high = bootstrap(ratios)
        bound = 1.03 if name in BARE else ANY
        measured.append(Measured(f"{name} / {bare}", statistics.median(ratios), low, high, len(ratios), bound))
    return report("decoding", measured, options.out)


if __name__ == "__main__":
    sys.exit(main())
