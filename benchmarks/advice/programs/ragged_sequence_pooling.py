"""Classifies click histories of different lengths: padding collate, length mask, attention pooling."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class ClickHistories(Dataset):
    def __init__(self, count, items, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(3, 20, (count,), generator=generator).tolist()
        self.rows = [torch.randint(1, items, (length,), generator=generator) for length in lengths]
        self.labels = [int(row.float().mean() > items / 2) for row in self.rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


def collate(samples):
    rows, labels = zip(*samples)
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(rows, batch_first=True), lengths, torch.tensor(labels)


class PoolingClassifier(nn.Module):
    def __init__(self, items, width=16):
        super().__init__()
        self.embed = nn.Embedding(items, width, padding_idx=0)
        self.score = nn.Linear(width, 1)
        self.head = nn.Linear(width, 2)

    def length_mask(self, tokens, lengths):
        steps = tokens.shape[1]
        assert (lengths <= steps).all(), f"lengths {lengths} do not fit into {steps} steps"
        positions = torch.arange(steps, device=lengths.device)
        return positions[None, :] < lengths[:, None]

    def forward(self, tokens, lengths):
        x = self.embed(tokens)
        mask = self.length_mask(tokens, lengths)
        weights = self.score(x).squeeze(-1).masked_fill(~mask, float("-inf")).softmax(-1)
        return self.head(torch.einsum("bt,btd->bd", weights, x))


def main():
    torch.manual_seed(17)
    dataset = ClickHistories(72, items=30, seed=3)
    loader = DataLoader(dataset, batch_size=12, collate_fn=collate)
    model = PoolingClassifier(items=30)
    forward = torch.compile(model, backend="eager", fullgraph=True, dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        total = 0.0
        for tokens, lengths, labels in loader:
            loss = F.cross_entropy(forward(tokens, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
