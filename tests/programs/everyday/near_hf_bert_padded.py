"""BERT classifier from config; every text is padded to one length, labels vary."""
import torch
from transformers import BertConfig, BertForSequenceClassification

MAX_LEN = 12
TEXTS = [
    "a fine film",
    "the plot was thin and the actors were tired of it all",
    "loved every minute",
    "no",
    "the sound design is the best part of this movie",
    "meh",
]
LABELS = [1, 0, 1, 0, 1, 0]


class Vocab:
    def __init__(self, texts):
        self.stoi = {"[PAD]": 0}
        for t in texts:
            for w in t.split():
                self.stoi.setdefault(w, len(self.stoi))

    def encode(self, text):
        ids = [self.stoi[w] for w in text.split()][:MAX_LEN]
        mask = [1] * len(ids) + [0] * (MAX_LEN - len(ids))
        return ids + [0] * (MAX_LEN - len(ids)), mask


def batches(vocab, size=2):
    for i in range(0, len(TEXTS), size):
        enc = [vocab.encode(t) for t in TEXTS[i : i + size]]
        yield {
            "input_ids": torch.tensor([e[0] for e in enc]),
            "attention_mask": torch.tensor([e[1] for e in enc]),
            "labels": torch.tensor(LABELS[i : i + size]),
        }


def main():
    torch.manual_seed(0)
    vocab = Vocab(TEXTS)
    cfg = BertConfig(
        vocab_size=len(vocab.stoi), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=16,
        problem_type="single_label_classification",  # HF would set it in forward
    )
    model = BertForSequenceClassification(cfg).train()
    fast = torch.compile(model, backend="eager")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for batch in batches(vocab):
            out = fast(**batch)
            opt.zero_grad()
            out.loss.backward()
            opt.step()
        print(epoch, round(out.loss.item(), 3))


main()
