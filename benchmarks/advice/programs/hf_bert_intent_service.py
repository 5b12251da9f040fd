"""Intent classification service around BERT: requests are padded to a fixed length and answered one after another."""

from dataclasses import dataclass

import torch
from transformers import BertConfig, BertForSequenceClassification

MAX_LENGTH = 12
PAD = 0
LABELS = {0: "greeting", 1: "order", 2: "complaint"}


@dataclass
class Request:
    sentence: list[int]
    context: list[int] | None = None


def encode(requests):
    """Tokenizer stand-in: pad to MAX_LENGTH and return only the fields that are needed."""
    rows, types = [], []
    for request in requests:
        row = request.sentence + (request.context or [])
        kind = [0] * len(request.sentence) + [1] * len(request.context or [])
        rows.append(row + [PAD] * (MAX_LENGTH - len(row)))
        types.append(kind + [0] * (MAX_LENGTH - len(row)))
    fields = {"input_ids": torch.tensor(rows)}
    if (fields["input_ids"] == PAD).any():
        fields["attention_mask"] = (fields["input_ids"] != PAD).long()
    if any(request.context for request in requests):
        fields["token_type_ids"] = torch.tensor(types)
    return fields


class IntentService:
    def __init__(self, config):
        self.model = BertForSequenceClassification(config).eval()
        self.classify = torch.compile(self.model, backend="eager")

    @torch.no_grad()
    def answer(self, requests):
        logits = self.classify(**encode(requests)).logits
        scores = logits.softmax(-1)
        best = scores.argmax(-1)
        return [(LABELS[int(k)], float(s[k])) for k, s in zip(best, scores)]


def traffic():
    long = list(range(5, 17))
    yield [Request(long), Request(long[::-1])]
    yield [Request([7, 8, 9]), Request(long)]
    yield [Request(long[:6], context=long[6:]), Request(long)]
    yield [Request([4, 4, 5, 6, 7], context=[9, 9]), Request([3, 1])]
    yield [Request(long[:4]), Request(long[2:8])]


def main():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=len(LABELS),
    )
    service = IntentService(config)
    for requests in traffic():
        print(", ".join(f"{label} {score:.4f}" for label, score in service.answer(requests)))


if __name__ == "__main__":
    main()
