"""Registers point clouds of scans with trimmed ICP: first point to point, coarse to fine, then point to plane."""

import enum
import logging

import torch

log = logging.getLogger("icp")


class Metric(enum.Enum):
    POINT = "point"
    PLANE = "plane"


def hat(v):
    zero = torch.zeros_like(v[0])
    return torch.stack([zero, -v[2], v[1], v[2], zero, -v[0], -v[1], v[0], zero]).reshape(3, 3)


def surface(count, seed):
    generator = torch.Generator().manual_seed(seed)
    xy = 2 * torch.rand(count, 2, generator=generator, dtype=torch.float64) - 1
    z = 0.3 * torch.sin(3 * xy[:, 0]) * torch.cos(2 * xy[:, 1])
    points = torch.cat([xy, z[:, None]], 1)
    dx = 0.9 * torch.cos(3 * xy[:, 0]) * torch.cos(2 * xy[:, 1])
    dy = -0.6 * torch.sin(3 * xy[:, 0]) * torch.sin(2 * xy[:, 1])
    normals = torch.stack([-dx, -dy, torch.ones_like(dx)], 1)
    return points, normals / normals.norm(dim=1, keepdim=True)


def fit_points(p, q):
    """Kabsch's rotation and the shift that move p onto q."""
    cp, cq = p.mean(0), q.mean(0)
    u, _, vt = torch.linalg.svd((p - cp).T @ (q - cq))
    rotation = vt.T @ u.T
    if torch.det(rotation) < 0:
        rotation = vt.T @ torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=p.dtype)) @ u.T
    return rotation, cq - rotation @ cp


def fit_planes(p, q, n):
    """A step of Gauss-Newton on the distances of p from the planes at q."""
    lhs = torch.cat([torch.linalg.cross(p, n), n], 1)
    rhs = ((q - p) * n).sum(1)
    solution = torch.linalg.solve(lhs.T @ lhs, lhs.T @ rhs)
    return torch.linalg.matrix_exp(hat(solution[:3])), solution[3:]


@torch.compile(backend="eager", dynamic=False)
def align(source, target, normals, metric, keep=0.8):
    """One step of ICP: returns the rotation, the shift and the error."""
    distance, nearest = torch.cdist(source, target).min(1)
    order = distance.argsort()[: int(keep * source.shape[0])]
    p, q, n = source[order], target[nearest[order]], normals[nearest[order]]
    if metric is Metric.POINT:
        rotation, shift = fit_points(p, q)
    else:
        rotation, shift = fit_planes(p, q, n)
    error = distance[order].mean()
    log.debug("error %s", error)
    return rotation, shift, error


def register(source, target, normals, plan):
    for metric, count, steps in plan:
        part = slice(None, None, source.shape[0] // count)
        for _ in range(steps):
            rotation, shift, error = align(source[part], target, normals, metric)
            source = source @ rotation.T + shift
        print(f"  {metric.value:5s} with {count:3d} points: error {error:.4f}")
    return source


PLAN = [(Metric.POINT, 60, 4), (Metric.POINT, 80, 4), (Metric.POINT, 120, 4), (Metric.PLANE, 120, 4)]


def main():
    target, normals = surface(400, seed=0)
    for scan in range(3):
        source, _ = surface(240, seed=1 + scan)
        turn = torch.linalg.matrix_exp(hat(torch.tensor([0.05, -0.08, 0.1], dtype=torch.float64) * (scan + 1) / 2))
        print(f"scan {scan}")
        register(source @ turn.T + 0.05, target, normals, PLAN)


if __name__ == "__main__":
    main()
