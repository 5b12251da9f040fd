"""Tags images with a compiled backbone from a thread pool; images arrive in the aspect-ratio buckets of the training set."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

BUCKETS = [(16, 64), (20, 52), (24, 44), (28, 36), (32, 32), (36, 28), (44, 24), (52, 20), (64, 16), (64, 64)]

torch._dynamo.config.recompile_limit = 2 * len(BUCKETS)


class Patchify(nn.Module):
    def __init__(self, dim, patch=4):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, stride=patch)

    def forward(self, images):
        return self.proj(images).flatten(2).transpose(1, 2)


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.norm(x)
        weights = self.gate(y).softmax(dim=1)
        return x + (weights * self.value(y)).sum(dim=1, keepdim=True)


class Tagger(nn.Module):
    def __init__(self, dim=24, tags=5, depth=2):
        super().__init__()
        self.patchify = Patchify(dim)
        self.layers = nn.Sequential(*(Mixer(dim) for _ in range(depth)))
        self.head = nn.Linear(dim, tags)

    def forward(self, images):
        x = self.layers(self.patchify(images))
        return torch.sigmoid(self.head(F.relu(x).mean(dim=1)))


class TagPool:
    def __init__(self, model, workers=1):
        self.model = torch.compile(model.eval(), backend="eager", dynamic=False)
        self.pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="tagger")

    def tag(self, images):
        with torch.inference_mode():
            return self.model(images).round(decimals=4)

    def map(self, batches):
        return list(self.pool.map(self.tag, batches))


def main():
    torch.manual_seed(0)
    pool = TagPool(Tagger())
    batches = [torch.randn(2, 3, height, width) for height, width in BUCKETS]
    for (height, width), scores in zip(BUCKETS, pool.map(batches)):
        top = scores.mean(dim=0).topk(2)
        print(f"{height:2d}x{width:2d} tags {top.indices.tolist()} scores {[f'{s:.3f}' for s in top.values.tolist()]}")


if __name__ == "__main__":
    main()
