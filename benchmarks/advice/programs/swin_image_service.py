"""Image tagging service around a Swin model: micro-batches of fixed size, a result cache and usage statistics."""

import hashlib
import queue
import threading
from collections import OrderedDict, defaultdict

import numpy as np
import torch
from transformers import SwinConfig, SwinForImageClassification

TAGS = ("cat", "dog", "car", "tree")
BATCH_SIZE = 4


class ResultCache:
    def __init__(self, capacity):
        self.capacity = capacity
        self.entries = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key):
        with self.lock:
            if key in self.entries:
                self.entries.move_to_end(key)
                return self.entries[key]
            return None

    def put(self, key, value):
        with self.lock:
            self.entries[key] = value
            while len(self.entries) > self.capacity:
                self.entries.popitem(last=False)


class TaggingService:
    def __init__(self, model):
        self.model = model
        self.cache = ResultCache(capacity=6)
        self.stats = defaultdict(int)
        self.inbox = queue.Queue()
        self.results = {}
        self.classify = torch.compile(self._classify, backend="aot_eager", fullgraph=True)

    def _classify(self, pixel_values, valid):
        probs = self.model(pixel_values=pixel_values).logits.softmax(dim=-1)
        confidence, tag = probs.max(dim=-1)
        return torch.where(valid, tag, -1), confidence * valid

    def _run_batch(self, batch):
        images = np.zeros((BATCH_SIZE, 3, 32, 32), dtype=np.float32)
        valid = np.zeros(BATCH_SIZE, dtype=bool)
        for row, (_, _, image) in enumerate(batch):
            images[row] = image
            valid[row] = True
        with torch.inference_mode():
            tags, confidence = self.classify(torch.from_numpy(images), torch.from_numpy(valid))
        for (name, key, _), tag, score in zip(batch, tags.tolist(), confidence.tolist()):
            self.results[name] = (TAGS[tag], round(score, 4))
            self.cache.put(key, self.results[name])
        self.stats["batches"] += 1

    def worker(self):
        batch = []
        while (item := self.inbox.get()) is not None:
            name, image = item
            self.stats["requests"] += 1
            key = hashlib.sha256(image.tobytes()).hexdigest()
            if (cached := self.cache.get(key)) is not None:
                self.stats["hits"] += 1
                self.results[name] = cached
                continue
            batch.append((name, key, image))
            if len(batch) == BATCH_SIZE:
                self._run_batch(batch)
                batch = []
        if batch:
            self._run_batch(batch)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    config = SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[1, 2], num_heads=[2, 2], window_size=4, num_labels=len(TAGS)
    )
    service = TaggingService(SwinForImageClassification(config).eval())
    thread = threading.Thread(target=service.worker)
    thread.start()
    images = [rng.normal(size=(3, 32, 32)).astype(np.float32) for _ in range(9)]
    for number, index in enumerate([0, 1, 2, 3, 0, 4, 5, 1, 6, 7, 8]):
        service.inbox.put((f"upload-{number}", images[index]))
    service.inbox.put(None)
    thread.join()
    for name, result in sorted(service.results.items()):
        print(name, *result)
    print(dict(sorted(service.stats.items())))


if __name__ == "__main__":
    main()
