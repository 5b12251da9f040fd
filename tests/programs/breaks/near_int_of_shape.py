"""int(), float() and len() appear in the compiled code, but on sizes and on constants, which are no tensor values."""
import torch
from torch import nn


class PatchPool(nn.Module):
    def __init__(self, ratio):
        super().__init__()
        self.ratio = ratio
        self.norm = nn.LayerNorm(4)

    def forward(self, patches):
        keep = int(patches.shape[1] * float(self.ratio))
        scale = float(len(patches)) ** -0.5
        kept = self.norm(patches)[:, :keep]
        return kept.sum(dim=1) * scale, int(kept.dim())


torch.manual_seed(0)
pool = torch.compile(PatchPool("0.5"), backend="eager")
pool(torch.randn(3, 6, 4))
