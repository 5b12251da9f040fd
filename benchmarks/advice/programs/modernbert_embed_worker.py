"""A worker that embeds documents in bulk and answers search queries in between, with one ModernBERT encoder."""

import queue
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from transformers import ModernBertConfig, ModernBertModel

MAX_LEN = 24


@dataclass(order=True)
class Job:
    priority: int
    name: str = field(compare=False)
    texts: list = field(compare=False)


class HashTokenizer:
    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def __call__(self, texts):
        ids = torch.zeros(len(texts), MAX_LEN, dtype=torch.long)
        mask = torch.zeros(len(texts), MAX_LEN, dtype=torch.long)
        for row, text in enumerate(texts):
            words = [sum(map(ord, word)) * 31 % (self.vocab_size - 2) + 2 for word in text.lower().split()][:MAX_LEN]
            ids[row, : len(words)] = torch.tensor(words)
            mask[row, : len(words)] = 1
        return ids, mask


class Embedder:
    def __init__(self, model):
        self.model = model.eval()
        self.tokenizer = HashTokenizer(model.config.vocab_size)
        self.encode = torch.compile(self._encode, backend="eager")

    def _encode(self, ids, mask):
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)

    @torch.no_grad()
    def __call__(self, texts, rows=4):
        out = []
        for start in range(0, len(texts), rows):
            part = texts[start : start + rows]
            ids, mask = self.tokenizer(part + ["pad"] * (rows - len(part)))
            out.append(self.encode(ids, mask)[: len(part)])
        return torch.cat(out)


class Worker:
    def __init__(self, embedder, bulk_threads=2, query_threads=1):
        self.embedder = embedder
        self.bulk_threads, self.query_threads = bulk_threads, query_threads
        self.jobs = queue.PriorityQueue()
        self.index, self.names = None, []

    def run(self):
        while not self.jobs.empty():
            job = self.jobs.get()
            if job.name == "index":
                torch.set_num_threads(self.bulk_threads)
                vectors = self.embedder(job.texts)
                self.index = vectors if self.index is None else torch.cat([self.index, vectors])
                self.names += job.texts
            else:
                torch.set_num_threads(self.query_threads)
                scores = self.embedder(job.texts) @ self.index.T
                for text, row in zip(job.texts, scores):
                    best = row.argmax().item()
                    print(f"{text!r} -> {self.names[best]!r} {row[best]:.3f}")


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    config = ModernBertConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        local_attention=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        cls_token_id=1,
        sep_token_id=1,
    )
    worker = Worker(Embedder(ModernBertModel(config)))
    worker.jobs.put(Job(0, "index", ["red running shoes", "blue rain jacket", "wool winter hat", "trail shoes", "sun hat"]))
    worker.jobs.put(Job(1, "search", ["rain jacket", "warm hat"]))
    worker.jobs.put(Job(2, "index", ["leather boots", "cotton shirt", "linen shirt"]))
    worker.jobs.put(Job(3, "search", ["linen shirt", "boots for trail running", "shoes"]))
    worker.run()


if __name__ == "__main__":
    main()
