"""Embeds image crops for a search index: worker threads prepare and embed batches, the main thread embeds the queries."""

import queue
import threading

import torch
import torch.nn.functional as F
from torch import nn


class Embedder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, dim, 3, stride=2), nn.ReLU())
        self.project = nn.Linear(dim, dim)

    def forward(self, images):
        h = self.features(images).mean(dim=(2, 3))
        return F.normalize(self.project(h), dim=1)


class IndexBuilder:
    def __init__(self, model, workers=2):
        self.model = model
        self.jobs = queue.Queue()
        self.rows = {}
        self.lock = threading.Lock()
        self.model_lock = threading.Lock()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def _work(self):
        while (job := self.jobs.get()) is not None:
            key, crops = job
            images = crops.float() / 255.0
            with self.model_lock:
                vectors = self.model(images)
            with self.lock:
                self.rows[key] = vectors.detach()

    def build(self, batches):
        for thread in self.threads:
            thread.start()
        for key, crops in batches:
            self.jobs.put((key, crops))
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join()
        return torch.cat([self.rows[key] for key in sorted(self.rows)])


def crops(count, rows, seed):
    rng = torch.Generator().manual_seed(seed)
    return [(key, torch.randint(0, 256, (rows, 3, 24, 24), generator=rng, dtype=torch.uint8)) for key in range(count)]


def main():
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model = torch.compile(Embedder().eval(), backend="eager")
    queries = crops(1, 8, seed=9)[0][1].float() / 255.0
    wanted = model(queries)
    table = IndexBuilder(model).build(crops(6, 8, seed=1))
    similarity = wanted @ table.T
    print("index", tuple(table.shape))
    print("nearest", similarity.argmax(dim=1).tolist())
    print(f"mean best {similarity.amax(dim=1).mean().item():.4f}")


if __name__ == "__main__":
    main()
