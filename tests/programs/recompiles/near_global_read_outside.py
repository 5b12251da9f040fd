"""The global changes, but only eager code reads it and hands it on as a tensor, so there is nothing to guard."""
import torch

TEMPERATURE = 4


@torch.compile(backend="eager")
def soften(logits, temperature):
    shifted = logits - logits.max()
    return torch.softmax(shifted / temperature, dim=-1)


torch.manual_seed(0)
for epoch in range(4):
    soften(torch.randn(2, 5), torch.tensor(float(TEMPERATURE)))
    TEMPERATURE -= 1
