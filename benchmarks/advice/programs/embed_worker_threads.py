"""Embedding microservice: the model is warmed up at start-up, then a background worker serves the queue of requests."""

import queue
import threading
from concurrent.futures import Future

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=200, dim=32, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.project = nn.Linear(dim, 16)

    def forward(self, ids):
        padding = ids == 0
        x = self.embed(ids)
        attended, _ = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)
        x = self.norm(x + attended).masked_fill(padding[..., None], 0.0)
        pooled = x.sum(dim=1) / (~padding).sum(dim=1, keepdim=True)
        return F.normalize(self.project(pooled), dim=-1)


class EmbeddingService:
    def __init__(self, batch_size=4, length=12):
        self.batch_size = batch_size
        self.length = length
        self.model = Encoder().eval()
        self.encode = torch.compile(self.model, backend="eager", dynamic=False)
        self.requests = queue.Queue()
        self.worker = threading.Thread(target=self.serve, name="embedder", daemon=True)

    def warm_up(self):
        ids = torch.ones(self.batch_size, self.length, dtype=torch.long)
        for _ in range(2):
            self.encode(ids)

    def collate(self, texts):
        batch = torch.zeros(self.batch_size, self.length, dtype=torch.long)
        batch[:, 0] = 1
        for row, text in enumerate(texts):
            codes = [1 + ord(char) % 199 for char in text[: self.length]]
            batch[row, : len(codes)] = torch.tensor(codes)
        return batch

    def serve(self):
        while (item := self.requests.get()) is not None:
            texts, future = item
            try:
                vectors = self.encode(self.collate(texts))[: len(texts)]
                future.set_result(vectors.detach().numpy())
            except Exception as error:
                future.set_exception(error)

    def submit(self, texts):
        future = Future()
        self.requests.put((texts, future))
        return future

    def close(self):
        self.requests.put(None)
        self.worker.join()


def main():
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    service = EmbeddingService()
    service.warm_up()
    service.worker.start()
    futures = [service.submit(texts) for texts in (["hello", "world"], ["torch", "compile", "threads"], ["one more"])]
    for number, future in enumerate(futures):
        vectors = future.result()
        print(f"request {number}: {vectors.shape[0]} vectors, first {[f'{value:.4f}' for value in vectors[0, :3]]}")
    service.close()


if __name__ == "__main__":
    main()
