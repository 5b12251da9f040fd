"""Semantic search backend: DistilBERT embeddings, a cache that the request threads share, and cosine ranking."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from transformers import DistilBertConfig, DistilBertModel

LENGTH = 12
DOCUMENTS = ["cheap flights to rome", "train timetable", "best pasta in town", "hotel near the station"]
QUERIES = ["pasta rome", "station hotel", "pasta rome", "cheap train"]


def tokenize(text):
    tokens = [sum(map(ord, word)) % 90 + 5 for word in text.split()]
    return torch.tensor([tokens + [0] * (LENGTH - len(tokens))])


class Embedder:
    def __init__(self, model):
        self.encode = torch.compile(model, backend="eager")

    @torch.inference_mode()
    def embed(self, text):
        tokens = tokenize(text)
        mask = (tokens != 0).long()
        hidden = self.encode(input_ids=tokens, attention_mask=mask).last_hidden_state
        return F.normalize((hidden * mask[..., None]).sum(dim=1) / mask.sum(), dim=-1)


class Index:
    def __init__(self, vectors):
        self.vectors = vectors
        self.lock = threading.Lock()
        self.hits = torch.zeros(len(vectors))

    @torch.compile(backend="eager")
    def rank(self, query):
        scores = (self.vectors @ query.T).squeeze(1)
        with self.lock:
            self.hits.add_(F.one_hot(scores.argmax(), len(self.vectors)))
        return scores.argsort(descending=True, stable=True)


def start(threads):
    config = DistilBertConfig(
        vocab_size=100, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=32
    )
    embedder = Embedder(DistilBertModel(config).eval())
    vectors = torch.cat([embedder.embed(text) for text in DOCUMENTS])
    torch.set_num_threads(threads)
    return embedder, Index(vectors)


def main():
    torch.manual_seed(0)
    embedder, index = start(threads=2)
    cache = {}
    with ThreadPoolExecutor(max_workers=1) as pool:
        for query in QUERIES:
            if query not in cache:
                cache[query] = pool.submit(embedder.embed, query).result()
            with torch.inference_mode():
                order = index.rank(cache[query])
            print(f"{query}: {DOCUMENTS[order[0]]!r} before {DOCUMENTS[order[1]]!r}")
    print("hits", index.hits.int().tolist(), "cached", len(cache))


if __name__ == "__main__":
    main()
