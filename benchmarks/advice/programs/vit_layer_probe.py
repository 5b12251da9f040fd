"""Collects the [CLS] activations of two ViT layers for a linear probe that separates striped from plain images."""

import numpy as np
import torch
from torch import nn
from transformers import ViTConfig, ViTModel

LAYERS = (0, 1)


class ActivationRecorder:
    """Keeps what the hooked layers put out, one entry per batch."""

    def __init__(self, model, layers):
        self.outputs = {index: [] for index in layers}
        self.handles = [model.layers[index].register_forward_hook(self._hook(index)) for index in layers]

    def _hook(self, index):
        outputs = self.outputs[index]

        def hook(module, args, output):
            hidden = output[0] if isinstance(output, tuple) else output
            outputs.append(hidden[:, 0].detach())

        return hook

    def features(self, index):
        return torch.cat(self.outputs[index])

    def remove(self):
        for handle in self.handles:
            handle.remove()


def make_images(batches, size, rng):
    for _ in range(batches):
        images = rng.normal(0, 0.3, size=(size, 3, 32, 32)).astype(np.float32)
        labels = rng.integers(0, 2, size=size)
        images[labels == 1, :, ::4, :] += 2.0
        yield torch.from_numpy(images), torch.from_numpy(labels)


def fit_probe(features, labels, steps=40):
    features = (features - features.mean(0)) / (features.std(0) + 1e-6)
    probe = nn.Linear(features.shape[1], 2)
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.5)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(probe(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (probe(features).argmax(1) == labels).float().mean().item()


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    model = ViTModel(config, add_pooling_layer=False).eval()
    recorder = ActivationRecorder(model, LAYERS)
    encoder = torch.compile(model, backend="eager")
    labels = []
    with torch.no_grad():
        for images, targets in make_images(10, 8, rng):
            encoder(pixel_values=images)
            labels.append(targets)
    labels = torch.cat(labels)
    recorder.remove()
    for index in LAYERS:
        features = recorder.features(index)
        print(f"layer {index}: {tuple(features.shape)} norm {features.norm():.3f} probe {fit_probe(features, labels):.3f}")


if __name__ == "__main__":
    main()
