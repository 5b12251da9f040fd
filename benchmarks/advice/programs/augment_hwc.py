"""Trains on images kept as numpy HWC arrays; flips, brightness and cutout come from a seeded generator in the compiled step."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ArrayImages(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(4, size=n)
        self.images = rng.normal(0.0, 0.3, size=(n, 16, 16, 3)).astype(np.float32)
        self.images[np.arange(n), 4 * self.labels] += 1.0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.images[index]), int(self.labels[index])


class BatchAugment:
    def __init__(self, seed, brightness=0.2, cutout=5):
        self.brightness, self.cutout = brightness, cutout
        self.rng = torch.Generator().manual_seed(seed)

    def draw(self, *shape):
        return torch.rand(*shape, generator=self.rng)

    def __call__(self, images):
        n, _, height, width = images.shape
        flip, gain, top = self.draw(3, n)
        images = torch.where(flip.view(n, 1, 1, 1) < 0.5, images, images.flip(-1))
        images = images * (1.0 + self.brightness * (2 * gain.view(n, 1, 1, 1) - 1))
        first = (top * (width - self.cutout)).long().view(n, 1)
        columns = torch.arange(width)
        hole = (columns >= first) & (columns < first + self.cutout)
        return images * ~hole.view(n, 1, 1, width)


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 4, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x)).mean(dim=3)
        return self.fc(F.adaptive_avg_pool1d(x, 4).flatten(1))


def collate(samples):
    images, labels = zip(*samples)
    return torch.stack(images).permute(0, 3, 1, 2), torch.tensor(labels)


def main():
    torch.manual_seed(0)
    augment, net = BatchAugment(seed=1), Net()
    model = torch.compile(net, backend="eager")
    augment_batch = torch.compile(augment, backend="eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    train = DataLoader(ArrayImages(128, seed=0), batch_size=32, shuffle=True, collate_fn=collate)
    held_out = ArrayImages(32, seed=9)
    val_images = torch.from_numpy(held_out.images.transpose(0, 3, 1, 2).copy())
    val_labels = torch.from_numpy(held_out.labels)
    for epoch in range(4):
        for images, labels in train:
            loss = F.cross_entropy(model(augment_batch(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = (model(val_images).argmax(dim=1) == val_labels).float().mean()
        print(f"epoch {epoch + 1} loss {loss.item():.3f} accuracy {accuracy.item():.3f}")


if __name__ == "__main__":
    main()
