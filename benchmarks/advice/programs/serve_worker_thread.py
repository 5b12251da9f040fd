"""A small embedding service: requests are queued, a worker batches them and runs a compiled BERT encoder."""

import queue
import threading
from concurrent.futures import Future

import torch
from transformers import BertConfig, BertModel

MAX_BATCH = 4
MAX_TOKENS = 16
VOCAB = 128


class HashTokenizer:
    """Stands in for the service's WordPiece tokenizer."""

    pad_id = 0

    def __call__(self, texts):
        ids = torch.zeros(MAX_BATCH, MAX_TOKENS, dtype=torch.long)
        for row, text in enumerate(texts):
            tokens = [1] + [2 + sum(map(ord, word)) % (VOCAB - 2) for word in text.split()][: MAX_TOKENS - 1]
            ids[row, : len(tokens)] = torch.tensor(tokens)
        return {"input_ids": ids, "attention_mask": (ids != self.pad_id).long()}


class EmbeddingEngine:
    def __init__(self):
        config = BertConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=MAX_TOKENS,
        )
        self.tokenizer = HashTokenizer()
        self.encoder = BertModel(config, add_pooling_layer=False).eval()
        self._embed = torch.compile(self._pooled, backend="eager")

    def _pooled(self, input_ids, attention_mask):
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean, dim=-1)

    def warmup(self):
        self._embed(**self.tokenizer(["warm up"] * MAX_BATCH))

    def embed(self, texts):
        return self._embed(**self.tokenizer(texts))[: len(texts)].detach()


class Server:
    def __init__(self, engine):
        self.engine = engine
        self.requests = queue.Queue()
        self.thread = threading.Thread(target=self._worker, name="embedding-worker")

    def start(self):
        self.engine.warmup()
        self.thread.start()

    def submit(self, text):
        future = Future()
        self.requests.put((text, future))
        return future

    def stop(self):
        self.requests.put(None)
        self.thread.join()

    def _worker(self):
        while True:
            pending = []
            while len(pending) < MAX_BATCH:
                item = self.requests.get()
                if item is None:
                    return
                pending.append(item)
            vectors = self.engine.embed([text for text, _ in pending])
            for (_, future), vector in zip(pending, vectors):
                future.set_result(vector)


def main():
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    server = Server(EmbeddingEngine())
    server.start()
    texts = [
        "how do i reset my password",
        "reset password",
        "cheap flights to lisbon",
        "flight tickets lisbon",
        "what is the capital of portugal",
        "lisbon weather in march",
        "forgot my login",
        "change account email",
    ]
    futures = [server.submit(text) for text in texts]
    vectors = torch.stack([future.result() for future in futures])
    server.stop()
    scores = vectors @ vectors.T - 2 * torch.eye(len(texts))
    for text, row in zip(texts, scores):
        print(f"{text:35s} -> {texts[row.argmax()]} ({row.max():.3f})")


if __name__ == "__main__":
    main()
