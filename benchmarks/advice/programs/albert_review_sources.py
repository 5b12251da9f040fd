"""Fine-tunes ALBERT on reviews that come from two sources: a web crawl and an export of the mobile app."""

import numpy as np
import torch
from transformers import AlbertConfig, AlbertForSequenceClassification

LENGTH = 16
BATCH = 4


class WebReviews:
    """Reviews of the web crawl, tokenized on the fly."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.rows = [rng.integers(5, 100, size=LENGTH).tolist() for _ in range(count)]

    def batches(self):
        for start in range(0, len(self.rows), BATCH):
            tokens = torch.tensor(self.rows[start : start + BATCH])
            yield tokens, (tokens.sum(dim=1) % 2).long()


class AppReviews:
    """Reviews of the mobile app, tokenized beforehand and stored as a compact array."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.tokens = rng.integers(5, 100, size=(count, LENGTH)).astype(np.int32)

    def batches(self):
        for start in range(0, len(self.tokens), BATCH):
            tokens = torch.from_numpy(self.tokens[start : start + BATCH])
            yield tokens, (tokens.sum(dim=1) % 2).long()


def build_classifier():
    config = AlbertConfig(
        vocab_size=100,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=2,
        hidden_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
    )
    return AlbertForSequenceClassification(config)


def run_epoch(classifier, source, optimizer):
    losses, correct, seen = [], 0, 0
    for tokens, sentiment in source.batches():
        output = classifier(input_ids=tokens, labels=sentiment)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(output.loss.item())
        correct += (output.logits.argmax(dim=1) == sentiment).sum().item()
        seen += len(sentiment)
    return sum(losses) / len(losses), correct / seen


def main():
    torch.manual_seed(0)
    model = build_classifier().train()
    classifier = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for source in (WebReviews(12, seed=1), AppReviews(8, seed=2)):
            loss, accuracy = run_epoch(classifier, source, optimizer)
            print(f"epoch {epoch} {type(source).__name__} loss {loss:.4f} accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
