"""Trains a small convolutional classifier in mixed precision and validates it after each epoch."""

import torch
import torch.nn.functional as F
from torch import nn


class ConvNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, classes)

    def forward(self, images):
        x = F.relu(self.bn1(self.conv1(images)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


class Trainer:
    def __init__(self, model, train_batches, val_batches, lr=0.2):
        self.model = model
        self.compiled = torch.compile(model, backend="aot_eager")
        self.train_batches = train_batches
        self.val_batches = val_batches
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for images, labels in self.train_batches:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.compiled(images)
                loss = F.cross_entropy(logits.float(), labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_batches)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        correct, seen = 0, 0
        for images, labels in self.val_batches:
            predicted = self.compiled(images).argmax(dim=-1)
            correct += (predicted == labels).sum().item()
            seen += len(labels)
        return correct / seen

    def fit(self, epochs):
        print(f"before training accuracy {self.validate():.4f}")
        for epoch in range(epochs):
            loss = self.train_epoch()
            accuracy = self.validate()
            print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.4f}")


def make_batches(sizes, generator):
    batches = []
    for size in sizes:
        labels = torch.randint(0, 5, (size,), generator=generator)
        images = torch.rand(size, 3, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1)
        batches.append((images.contiguous(memory_format=torch.channels_last), labels))
    return batches


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    train_batches = make_batches([16] * 4, generator)
    val_batches = make_batches([32, 32, 20], generator)
    trainer = Trainer(ConvNet(), train_batches, val_batches)
    trainer.fit(epochs=6)


if __name__ == "__main__":
    main()
