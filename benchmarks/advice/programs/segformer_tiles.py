"""Fine-tunes SegFormer on tiles of a synthetic aerial image and reports the mean IoU."""

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import SegformerConfig, SegformerForSemanticSegmentation

CLASSES = ("ground", "water", "roof")
TILE = 32


class TileDataset(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), size=(count, TILE // 8, TILE // 8)).repeat(8, axis=1).repeat(8, axis=2)
        noise = rng.normal(0, 0.2, size=(count, 3, TILE, TILE))
        self.images = (np.eye(3)[self.labels].transpose(0, 3, 1, 2) + noise).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": torch.from_numpy(self.images[index]), "labels": torch.from_numpy(self.labels[index])}


def build_model():
    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        num_labels=len(CLASSES),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
    return SegformerForSemanticSegmentation(config)


def mean_iou(predicted, labels):
    ious = []
    for index in range(len(CLASSES)):
        both = ((predicted == index) & (labels == index)).sum().item()
        either = ((predicted == index) | (labels == index)).sum().item()
        ious.append(both / either if either else 1.0)
    return sum(ious) / len(ious)


def train(model, loader, epochs=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    segment = torch.compile(model, backend="eager")
    for epoch in range(epochs):
        total, ious = 0.0, []
        for batch in loader:
            outputs = segment(**batch)
            optimizer.zero_grad()
            outputs.loss.backward()
            optimizer.step()
            total += outputs.loss.item()
            upsampled = F.interpolate(outputs.logits.detach(), size=(TILE, TILE), mode="bilinear", align_corners=False)
            ious.append(mean_iou(upsampled.argmax(dim=1), batch["labels"]))
        print(f"epoch {epoch} loss {total / len(loader):.4f} iou {np.mean(ious):.4f}")


def main():
    torch.manual_seed(0)
    model = build_model().train()
    loader = DataLoader(TileDataset(16, seed=0), batch_size=4, shuffle=False, drop_last=True)
    train(model, loader)


if __name__ == "__main__":
    main()
