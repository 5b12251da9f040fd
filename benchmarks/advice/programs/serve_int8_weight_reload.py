"""A scoring server with int8 weights that picks up new checkpoints between requests, served by two worker threads."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn

logger = logging.getLogger("scoring")
BATCH = 4


@dataclass(frozen=True)
class ScoreRequest:
    user: str
    features: tuple[float, ...]


class Int8Linear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(out_features, 1))
        self.register_buffer("bias", torch.zeros(out_features))

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


def quantize(state):
    out = {}
    for name, value in state.items():
        if name.endswith("weight"):
            scale = value.abs().amax(dim=1, keepdim=True) / 127
            out[name] = torch.round(value / scale).to(torch.int8)
            out[name.replace("weight", "scale")] = scale
        else:
            out[name] = value
    return out


def checkpoint(step):
    generator = torch.Generator().manual_seed(step)
    return {
        "0.weight": torch.randn(16, 6, generator=generator) * (1 + step),
        "0.bias": torch.randn(16, generator=generator),
        "2.weight": torch.randn(1, 16, generator=generator),
        "2.bias": torch.randn(1, generator=generator),
    }


class ScoringServer:
    def __init__(self):
        self.model = nn.Sequential(Int8Linear(6, 16), nn.ReLU(), Int8Linear(16, 1)).eval()
        self.score = torch.compile(self.model, backend="aot_eager")
        self.lock = threading.Lock()
        self.version = -1
        self.served = {}

    def reload(self, step):
        with self.lock:
            self.model.load_state_dict(quantize(checkpoint(step)))
            self.version = step
        logger.info("now serving checkpoint %d", step)

    def handle(self, requests):
        features = torch.zeros(BATCH, 6)
        features[: len(requests)] = torch.tensor([request.features for request in requests])
        began = time.perf_counter()
        with self.lock, torch.inference_mode():
            scores = self.score(features)
            self.served[self.version] = self.served.get(self.version, 0) + len(requests)
        logger.debug("batch of %d in %.1f ms", len(requests), 1e3 * (time.perf_counter() - began))
        return [(request.user, scores[i, 0].item()) for i, request in enumerate(requests)]


def main():
    server = ScoringServer()
    requests = [ScoreRequest(f"user{i}", tuple((i * 7 + j * 3) % 11 / 11 for j in range(6))) for i in range(10)]
    batches = [requests[i : i + BATCH] for i in range(0, len(requests), BATCH)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for step in range(4):
            server.reload(step)
            results = [pair for future in [pool.submit(server.handle, batch) for batch in batches] for pair in future.result()]
            print(f"checkpoint {step}:", " ".join(f"{user}={score:.4f}" for user, score in results[::3]))
    print("served", server.served)


if __name__ == "__main__":
    main()
