"""A model with dropout is trained and then evaluated through the same compiled object."""
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 12)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(12, 2)

    def forward(self, x):
        h = torch.relu(self.hidden(x))
        h = self.dropout(h)  # DX107
        return self.out(h)


torch.manual_seed(0)
model = Classifier()
compiled = torch.compile(model, backend="eager")
compiled(torch.randn(4, 6)).sum().backward()
model.eval()
compiled(torch.randn(4, 6))
