"""The last batch is ragged, but a collate pads it and masks the loss."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16


class Series(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.x = torch.randn(n, 12, generator=g)
        self.y = self.x.sum(1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i]}


def collate(items):
    x = torch.stack([it["x"] for it in items])
    y = torch.stack([it["y"] for it in items])
    valid = torch.ones(len(items))
    short = BATCH - len(items)
    if short:
        x = torch.cat([x, x.new_zeros(short, x.size(1))])
        y = torch.cat([y, y.new_zeros(short, 1)])
        valid = torch.cat([valid, torch.zeros(short)])
    return {"x": x, "y": y, "valid": valid}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 1))

    def forward(self, batch):
        out = self.net(batch["x"])
        err = (out - batch["y"]).pow(2).squeeze(1) * batch["valid"]
        return err.sum() / batch["valid"].sum()


def main():
    torch.manual_seed(0)
    model = Regressor()
    step = torch.compile(model, backend="aot_eager")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=3)
    loader = DataLoader(Series(40), batch_size=BATCH, collate_fn=collate)
    for epoch in range(3):
        for batch in loader:
            loss = step(batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
        sched.step()
        print(epoch, f"{loss.item():.3f}", sched.get_last_lr())


main()
