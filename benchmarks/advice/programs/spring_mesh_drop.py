"""Drops a mesh of springs onto a floor with substeps; the state is tensors of a fixed shape from the first step on."""
import torch
from torch import nn


class Mesh(nn.Module):
    def __init__(self, side=6, stiffness=80.0):
        super().__init__()
        grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"), -1).float()
        height = torch.full((side, side, 1), 2.0)
        index = torch.arange(side * side).view(side, side)
        right = torch.stack([index[:, :-1].flatten(), index[:, 1:].flatten()])
        down = torch.stack([index[:-1].flatten(), index[1:].flatten()])
        self.register_buffer("edges", torch.cat([right, down], 1))
        self.register_buffer("start", torch.cat([grid, height], -1).view(-1, 3))
        self.register_buffer("gravity", torch.tensor([0.0, 0.0, -9.8]))
        self.stiffness = nn.Parameter(torch.tensor(stiffness))
        self.damping = 0.98

    def force(self, position):
        a, b = self.edges
        delta = position[b] - position[a]
        length = delta.norm(dim=1, keepdim=True).clamp_min(1e-6)
        pull = self.stiffness * (length - 1.0) * delta / length
        return self.gravity + torch.zeros_like(position).index_add(0, a, pull).index_add(0, b, -pull)

    def forward(self, position, velocity, dt, wind):
        for _ in range(4):
            velocity = self.damping * (velocity + dt * (self.force(position) + wind))
            position = position + dt * velocity
            below = position[:, 2:] < 0
            velocity = torch.where(below, -0.5 * velocity, velocity)
            position = torch.cat([position[:, :2], position[:, 2:].clamp_min(0)], 1)
        return position, velocity


def main():
    torch.manual_seed(6)
    mesh = Mesh()
    step = torch.compile(mesh, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.Adam(mesh.parameters(), lr=1.0)
    for trial in range(2):
        position, velocity = mesh.start.clone(), torch.zeros_like(mesh.start)
        for frame in range(5):
            wind = 0.1 * torch.randn(3)
            dt = torch.tensor(0.01 / (1 + 0.1 * frame))
            position, velocity = step(position, velocity, dt, wind)
        loss = (position[:, 2].mean() - 1.5).pow(2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"trial {trial} height {position[:, 2].mean().item():.3f} stiffness {mesh.stiffness.item():.1f}")


if __name__ == "__main__":
    main()
