"""A roguelike's monsters: hit rolls, flood-filled distances and moves are computed on tensors."""

import random

import torch
import torch.nn.functional as F

SIZE = 9


class Dead(Exception):
    pass


def make_map(seed):
    gen = torch.Generator().manual_seed(seed)
    walls = torch.rand(SIZE, SIZE, generator=gen) < 0.25
    walls[0, 0] = walls[-1, -1] = False
    return walls


@torch.compile(backend="eager")
def distances(walls, start):
    """Steps from the start to each field; fields that cannot be reached keep a large number."""
    big = torch.full((SIZE, SIZE), 999.0)
    dist = torch.where(start, torch.zeros(()), big)
    while True:
        around = F.pad(dist[None, None], (1, 1, 1, 1), value=999.0)
        best = -F.max_pool2d(-around, 3, stride=1)[0, 0] + 1
        new = torch.where(walls, big, torch.minimum(dist, best))
        if torch.equal(new, dist):
            return dist
        dist = new


@torch.compile(backend="eager")
def fight(health, armor, weapon):
    roll = random.randint(1, 6)
    damage = (roll + weapon["bonus"] - armor).clamp(min=0)
    return (health - damage * weapon["factor"]).clamp(min=0)


def check(health):
    if bool((health <= 0).all()):
        raise Dead
    return int((health > 0).sum())


def main():
    random.seed(4)
    for level in range(2):
        walls = make_map(level)
        start = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        start[0, 0] = True
        dist = distances(walls, start)
        print(f"level {level}: exit in {dist[-1, -1].item():.0f} steps")
    health = torch.tensor([14.0, 18.0, 9.0])
    armor = torch.tensor([1.0, 2.0, 0.0])
    sword = {"bonus": 1, "factor": torch.tensor(1.0)}
    flame = {"bonus": 1, "factor": torch.tensor(2.0)}
    try:
        for turn in range(20):
            health = fight(health, armor, flame if turn % 3 == 2 else sword)
            print(f"turn {turn}: {health.tolist()} alive {check(health)}")
    except Dead:
        print("the monsters are dead")


if __name__ == "__main__":
    main()
