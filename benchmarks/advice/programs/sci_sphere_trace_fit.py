"""Fits the centre and radius of a sphere to a target image by differentiable sphere tracing of a signed distance field."""

import torch
import torch.nn.functional as F
from torch import nn


class Scene(nn.Module):
    def __init__(self, centre, radius):
        super().__init__()
        self.centre = nn.Parameter(torch.tensor(centre))
        self.radius = nn.Parameter(torch.tensor(radius))

    def forward(self, points):
        return (points - self.centre).norm(dim=-1) - self.radius


class Camera:
    def __init__(self, size, focal):
        axis = (torch.arange(size) + 0.5) / size * 2 - 1
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        self.origin = torch.tensor([0.0, 0.0, -3.0])
        self.rays = F.normalize(torch.stack([x, y, torch.full_like(x, focal)], dim=-1), dim=-1).reshape(-1, 3)


class Renderer(nn.Module):
    def __init__(self, scene, camera, steps=16, light=(0.4, -0.5, 0.8)):
        super().__init__()
        self.scene = scene
        self.camera = camera
        self.steps = steps
        self.register_buffer("light", F.normalize(torch.tensor(light), dim=0))

    def forward(self):
        depth = torch.zeros(self.camera.rays.shape[0])
        for _ in range(self.steps):
            depth = depth + self.scene(self.camera.origin + depth.unsqueeze(-1) * self.camera.rays)
        points = self.camera.origin + depth.unsqueeze(-1) * self.camera.rays
        hit = (depth < 6.0) & (self.scene(points).abs() < 1e-2)
        image = torch.zeros_like(depth)
        normals = F.normalize(points[hit] - self.scene.centre, dim=-1)
        image[hit] = 0.1 + 0.9 * (normals @ -self.light).clamp(min=0)
        return image


def main():
    camera = Camera(size=20, focal=1.4)
    with torch.no_grad():
        target = Renderer(Scene([0.25, -0.1, 0.2], 0.9), camera)()
    renderer = Renderer(Scene([0.15, 0.0, 0.1], 0.95), camera)
    render = torch.compile(renderer, backend="eager")
    optimizer = torch.optim.Adam(renderer.parameters(), lr=5e-3)
    for step in range(24):
        loss = F.mse_loss(render(), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 7:
            with torch.no_grad():
                preview = render()
            print(f"step {step + 1:2d} loss {loss.item():.5f} brightness {preview.mean().item():.4f}")
    print("radius", round(renderer.scene.radius.item(), 3))


if __name__ == "__main__":
    main()
