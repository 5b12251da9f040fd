"""An embedding service: the encoder is warmed up at start-up, then requests are embedded by a pool of worker threads."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

SEQ_LEN = 16


@dataclass
class EmbedRequest:
    request_id: int
    token_ids: list[int]
    normalize: bool = True


@dataclass
class EmbedResponse:
    request_id: int
    vector: list[float] = field(default_factory=list)


class Encoder(nn.Module):
    def __init__(self, vocab=100, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.mixer = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, input_ids):
        keep = (input_ids != 0).unsqueeze(-1)
        hidden = self.norm(self.embed(input_ids))
        hidden = hidden + self.mixer(hidden)
        return (hidden * keep).sum(dim=1) / keep.sum(dim=1)


class EmbeddingService:
    def __init__(self, workers=2):
        torch.manual_seed(0)
        self.model = Encoder().eval()
        self.encode = torch.compile(self.model, backend="eager")
        self.lock = threading.Lock()
        self.pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="embed")

    def warmup(self):
        self.encode(torch.ones(1, SEQ_LEN, dtype=torch.long))

    def handle(self, request):
        padded = request.token_ids[:SEQ_LEN] + [0] * (SEQ_LEN - len(request.token_ids))
        input_ids = torch.tensor([padded])
        with self.lock:
            vector = self.encode(input_ids)
        if request.normalize:
            vector = F.normalize(vector, dim=-1)
        return EmbedResponse(request.request_id, vector[0].tolist())

    def submit(self, requests):
        return [future.result() for future in [self.pool.submit(self.handle, request) for request in requests]]


def main():
    torch.set_grad_enabled(False)
    service = EmbeddingService()
    service.warmup()
    requests = [EmbedRequest(i, [(7 * i + 3 * j) % 99 + 1 for j in range(4 + i)], normalize=i % 2 == 0) for i in range(6)]
    for response in service.submit(requests):
        print(response.request_id, " ".join(f"{value:.4f}" for value in response.vector[:4]))
    service.pool.shutdown()


if __name__ == "__main__":
    main()
