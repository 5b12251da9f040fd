"""A small trainer for DistilBERT: epochs of training steps with an evaluation after each epoch."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification, get_linear_schedule_with_warmup


class Trainer:
    def __init__(self, model, train_set, eval_set, batch_size=4, epochs=2):
        self.model = model
        self.compiled = torch.compile(model, backend="eager")
        self.train_loader = DataLoader(train_set, batch_size=batch_size)
        self.eval_loader = DataLoader(eval_set, batch_size=batch_size)
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        steps = epochs * len(self.train_loader)
        self.scheduler = get_linear_schedule_with_warmup(self.optimizer, 1, steps)

    def compute_loss(self, batch):
        input_ids, labels = batch
        return self.compiled(input_ids=input_ids, labels=labels)

    def training_step(self, batch):
        loss = self.compute_loss(batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        losses, hits, seen = [], 0, 0
        for batch in self.eval_loader:
            out = self.compute_loss(batch)
            losses.append(out.loss.item())
            hits += (out.logits.argmax(-1) == batch[1]).sum().item()
            seen += len(batch[1])
        self.model.train()
        return sum(losses) / len(losses), hits / seen

    def train(self):
        self.model.train()
        for epoch in range(self.epochs):
            losses = [self.training_step(batch) for batch in self.train_loader]
            eval_loss, accuracy = self.evaluate()
            print(f"epoch {epoch} train {sum(losses) / len(losses):.4f} eval {eval_loss:.4f} accuracy {accuracy:.4f}")


def make_set(size):
    input_ids = torch.randint(1, 60, (size, 10))
    return TensorDataset(input_ids, (input_ids[:, 0] > 30).long())


def main():
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=60,
        max_position_embeddings=16,
        n_layers=2,
        n_heads=4,
        dim=32,
        hidden_dim=64,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        problem_type="single_label_classification",
    )
    model = DistilBertForSequenceClassification(config)
    Trainer(model, make_set(14), make_set(8)).train()


if __name__ == "__main__":
    main()
