"""Classifier training: whole step compiled, cosine schedule, ragged last batch."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, n_in=20, n_cls=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, n_cls))

    def forward(self, x):
        return self.body(x)  # DX102


def make_loader():
    x = torch.randn(72, 20)
    y = torch.randint(0, 4, (72,))
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=False)


def main():
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
    loss_fn = nn.CrossEntropyLoss()

    @torch.compile(backend="aot_eager")
    def loss_of(x, y):
        out = model(x)
        return loss_fn(out, y)

    @torch.compile(backend="eager")
    def update():
        opt.step()  # DX113, DX104, DX205

    for epoch in range(3):
        total = 0.0
        for x, y in make_loader():
            opt.zero_grad(set_to_none=True)
            loss = loss_of(x, y)
            loss.backward()
            update()
            total += loss.item()
        sched.step()
        print(f"epoch {epoch} loss {total:.3f} lr {sched.get_last_lr()[0]:.4f}")


main()
