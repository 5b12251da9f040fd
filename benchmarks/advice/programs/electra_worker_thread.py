"""Serves an Electra toxicity classifier: a worker thread takes requests off a queue in batches of fixed size."""

import queue
import threading
from concurrent.futures import Future

import torch
from transformers import ElectraConfig, ElectraForSequenceClassification

MAX_LENGTH = 16
BATCH_SIZE = 4
STOP = object()


def load_model():
    config = ElectraConfig(
        vocab_size=128,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=2,
    )
    return ElectraForSequenceClassification(config).eval()


def encode(text):
    tokens = [sum(map(ord, word)) % 120 + 5 for word in text.split()][:MAX_LENGTH]
    return tokens + [0] * (MAX_LENGTH - len(tokens))


class ToxicityServer:
    def __init__(self, model):
        self.predict = torch.compile(model, backend="eager")
        self.requests = queue.Queue()
        self.worker = threading.Thread(target=self.serve, daemon=True)

    def warm_up(self):
        tokens = torch.ones(BATCH_SIZE, MAX_LENGTH, dtype=torch.long)
        self.predict(input_ids=tokens, attention_mask=torch.ones_like(tokens))

    def submit(self, text):
        future = Future()
        self.requests.put((encode(text), future))
        return future

    def serve(self):
        while True:
            pending = [self.requests.get()]
            while len(pending) < BATCH_SIZE and pending[-1] is not STOP:
                pending.append(self.requests.get())
            pending = [item for item in pending if item is not STOP]
            if not pending:
                return
            rows = [tokens for tokens, _ in pending] + [[0] * MAX_LENGTH] * (BATCH_SIZE - len(pending))
            tokens = torch.tensor(rows)
            logits = self.predict(input_ids=tokens, attention_mask=(tokens != 0).long()).logits
            for (_, future), score in zip(pending, logits.softmax(dim=-1)[:, 1].tolist()):
                future.set_result(score)


def main():
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    server = ToxicityServer(load_model())
    server.warm_up()
    server.worker.start()
    texts = ["you are great", "what a terrible take", "see you at noon", "nobody asked you", "thanks a lot", "go away now"]
    futures = [server.submit(text) for text in texts]
    server.requests.put(STOP)
    server.requests.put(STOP)
    for text, future in zip(texts, futures):
        print(f"{text!r}: {future.result(timeout=300):.4f}")
    server.worker.join()


if __name__ == "__main__":
    main()
