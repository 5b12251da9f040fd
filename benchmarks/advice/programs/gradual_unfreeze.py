"""Fine-tunes a DistilBERT classifier with gradual unfreezing: one more layer is trained in each epoch, top first."""

import torch
from torch import nn
from transformers import DistilBertConfig, DistilBertForSequenceClassification

EPOCHS = 3
BATCH = 8
TOKENS = 12


def make_batches(count, generator):
    batches = []
    for _ in range(count):
        ids = torch.randint(4, 64, (BATCH, TOKENS), generator=generator)
        labels = (ids > 34).sum(1).gt(TOKENS // 2).long()
        batches.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return batches


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad_(False)


def unfreeze(module):
    for parameter in module.parameters():
        parameter.requires_grad_(True)


def build_model():
    config = DistilBertConfig(
        vocab_size=64, dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=TOKENS, dropout=0.0,
        attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=2,
    )
    return DistilBertForSequenceClassification(config)


class Trainer:
    def __init__(self, model, lr=5e-3):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
        self.loss_fn = torch.compile(self.compute_loss, backend="eager")

    def compute_loss(self, input_ids, attention_mask, labels):
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return nn.functional.cross_entropy(logits, labels)

    def train_epoch(self, batches):
        total = 0.0
        for batch in batches:
            loss = self.loss_fn(**batch)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.classifier.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item()
        return total / len(batches)


def main():
    torch.manual_seed(0)
    model = build_model()
    freeze(model.distilbert)
    layers = list(model.distilbert.transformer.layer)
    trainer = Trainer(model)
    batches = make_batches(6, torch.Generator().manual_seed(0))
    for epoch in range(EPOCHS):
        if epoch > 0:
            unfreeze(layers[-epoch])
        loss = trainer.train_epoch(batches)
        trained = sum(p.numel() for p in model.parameters() if p.grad is not None)
        print(f"epoch {epoch} loss {loss:.4f} trained parameters {trained}")


if __name__ == "__main__":
    main()
