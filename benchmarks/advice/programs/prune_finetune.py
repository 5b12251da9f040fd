"""Iterative magnitude pruning of a small classifier with torch.nn.utils.prune, fine-tuned between the rounds."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune


class Classifier(nn.Module):
    def __init__(self, inputs=16, hidden=48, classes=4):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.norm(self.fc1(x)))
        return self.head(F.relu(self.fc2(x)))


def batches(count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(32, 16, generator=generator)
        yield x, (x[:, :4] + 0.5 * x[:, 4:8]).argmax(dim=1)


def importance(layer):
    """Magnitudes of the latest weights; `layer.weight` of a pruned layer is as old as its last forward."""
    return dict(layer.named_parameters()).get("weight_orig", layer.weight).detach().abs()


def sparsity(layers):
    zeros = sum((layer.weight == 0).sum().item() for layer in layers)
    return zeros / sum(layer.weight.numel() for layer in layers)


def main():
    torch.manual_seed(0)
    model = Classifier()
    prunable = [model.fc1, model.fc2]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    compiled = torch.compile(model, backend="eager")

    def train(count, seed):
        for x, y in batches(count, seed):
            loss = F.cross_entropy(compiled(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    print(f"dense: loss {train(12, seed=0):.4f}")
    for round_index in range(3):
        for layer in prunable:
            prune.l1_unstructured(layer, "weight", amount=0.3, importance_scores=importance(layer))
        loss = train(6, seed=round_index + 1)
        print(f"round {round_index + 1}: loss {loss:.4f} sparsity {sparsity(prunable):.3f}")
    for layer in prunable:
        prune.remove(layer, "weight")
    model.eval()
    with torch.no_grad():
        hits = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in batches(4, seed=50))
    print(f"pruned: accuracy {hits / 128:.3f}")


if __name__ == "__main__":
    main()
