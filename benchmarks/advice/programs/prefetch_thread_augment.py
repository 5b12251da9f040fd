"""A background thread augments the next batches of spectrograms while the main thread trains on the current one."""

import queue
import threading

import torch
import torch.nn.functional as F
from torch import nn


class SpecAugment:
    def __init__(self, max_width=4, gain=0.2, seed=0):
        self.max_width, self.gain = max_width, gain
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, spec):
        start = torch.randint(spec.shape[-1] - self.max_width, (spec.shape[0], 1, 1), generator=self.generator)
        frames = torch.arange(spec.shape[-1])
        masked = (frames >= start) & (frames < start + self.max_width)
        gain = 1 + self.gain * torch.randn(spec.shape[0], 1, 1, generator=self.generator)
        return spec.masked_fill(masked, 0.0) * gain


class Normalize:
    def __init__(self, spec):
        self.mean, self.std = spec.mean((0, 2), keepdim=True), spec.std((0, 2), keepdim=True)

    def __call__(self, spec):
        return (spec - self.mean) / self.std


class PrefetchLoader:
    def __init__(self, spec, labels, transform, batch_size=16, depth=2):
        self.spec, self.labels, self.transform = spec, labels, transform
        self.batch_size, self.depth = batch_size, depth

    def __iter__(self):
        ready = queue.Queue(self.depth)

        def work(order):
            for rows in order.split(self.batch_size):
                ready.put((self.transform(self.spec[rows]), self.labels[rows]))
            ready.put(None)

        order = torch.randperm(len(self.spec))
        worker = threading.Thread(target=work, args=(order,), daemon=True)
        worker.start()
        while (item := ready.get()) is not None:
            yield item
        worker.join()


class Classifier(nn.Module):
    def __init__(self, bins, classes):
        super().__init__()
        self.conv = nn.Conv1d(bins, 16, 3, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, spec):
        return self.fc(F.relu(self.conv(spec)).mean(-1))


def main():
    torch.manual_seed(8)
    labels = torch.randint(3, (80,))
    spec = torch.randn(80, 10, 24) + labels.view(-1, 1, 1)
    normalize, augment = Normalize(spec), SpecAugment()

    @torch.compile(backend="eager")
    def transform(batch):
        return augment(normalize(batch))

    with torch.no_grad():
        preview = transform(spec[:16])
        print(f"preview mean {preview.mean().item():.3f} std {preview.std().item():.3f}")
    model = Classifier(10, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loader = PrefetchLoader(spec, labels, transform)
    for epoch in range(2):
        losses = []
        for batch, target in loader:
            loss = F.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch} loss {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
