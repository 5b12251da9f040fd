"""The compiled metric returns a tensor, and .item(), float() and tolist() are applied to it in eager code."""
import torch


@torch.compile(backend="eager")
def metrics(logits, labels):
    guesses = logits.argmax(-1)
    hits = (guesses == labels).float()
    return hits.mean(), torch.stack([logits.max(), logits.min()])


torch.manual_seed(0)
history = []
for _ in range(3):
    accuracy, spread = metrics(torch.randn(6, 4), torch.randint(0, 4, (6,)))
    history.append({"accuracy": accuracy.item(), "range": spread.tolist(), "low": float(spread[1])})
