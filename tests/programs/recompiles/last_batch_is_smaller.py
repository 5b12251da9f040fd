"""The last batch of the data set is smaller than the others, which costs one recompile for the new size."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(22, 5), torch.randint(0, 2, (22,)))
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))


@torch.compile(backend="eager")
def predict(inputs):
    logits = model(inputs)  # DX102
    return logits.argmax(dim=1)


correct = 0
for inputs, labels in DataLoader(data, batch_size=8):
    correct += (predict(inputs) == labels).sum().item()
