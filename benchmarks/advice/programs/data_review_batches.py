"""Fine-tuning a review classifier from a DataLoader whose collate function builds a dictionary per batch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAX_LEN = 12
LOG_EVERY = 2


class Reviews(Dataset):
    def __init__(self, size=43):
        self.items = []
        for i in range(size):
            tokens = [(i * 13 + j * 5) % 49 + 1 for j in range(4 + i % 8)]
            item = {"input_ids": tokens, "label": i % 3}
            if 8 <= i < 16:
                item["sample_weight"] = 0.5 + 0.1 * (i % 4)
            self.items.append(item)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    input_ids = torch.zeros(len(items), MAX_LEN, dtype=torch.long)
    for row, item in enumerate(items):
        input_ids[row, : len(item["input_ids"])] = torch.tensor(item["input_ids"])
    batch = {
        "input_ids": input_ids,
        "attention_mask": (input_ids != 0).float(),
        "labels": torch.tensor([item["label"] for item in items]),
    }
    if any("sample_weight" in item for item in items):
        batch["sample_weight"] = torch.tensor([item.get("sample_weight", 1.0) for item in items])
    return batch


class Classifier(nn.Module):
    def __init__(self, vocab=50, dim=16, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.hidden = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, batch):
        mask = batch["attention_mask"].unsqueeze(-1)
        hidden = (self.embed(batch["input_ids"]) * mask).sum(dim=1) / mask.sum(dim=1)
        logits = self.out(torch.relu(self.hidden(hidden)))
        losses = F.cross_entropy(logits, batch["labels"], reduction="none")
        if "sample_weight" in batch:
            losses = losses * batch["sample_weight"]
        return losses.mean()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Reviews(), batch_size=8, collate_fn=collate)
    model = Classifier()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, batch in enumerate(loader):
        loss = compiled(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
