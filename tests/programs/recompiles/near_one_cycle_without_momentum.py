"""The scheduler changes only the learning rate, which is a tensor; its wrapper of step() is not traced."""

import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=20, cycle_momentum=False)


@torch.compile(backend="eager")
def update():
    optimizer.step()  # DX205


for _ in range(5):
    model(torch.ones(2, 4)).sum().backward()
    update()
    scheduler.step()
    optimizer.zero_grad()
