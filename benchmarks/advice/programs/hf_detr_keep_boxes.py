"""Object detection with a small DETR: forward and post-processing to boxes in pixels."""

import torch
from torch import nn
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig


def detr_config():
    backbone = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"])
    return DetrConfig(
        backbone_config=backbone,
        num_queries=6,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        dropout=0.0,
        init_std=0.3,
        num_labels=5,
    )


class Detector(nn.Module):
    def __init__(self, detr, min_score=0.725):
        super().__init__()
        self.detr = detr
        self.min_score = min_score

    def to_corners(self, boxes):
        x, y, w, h = boxes.unbind(-1)
        return torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], dim=-1)

    def forward(self, pixel_values, sizes):
        out = self.detr(pixel_values=pixel_values)
        scores, labels = out.logits.softmax(-1)[..., :-1].max(-1)
        boxes = self.to_corners(out.pred_boxes) * sizes.flip(-1).repeat(1, 2)[:, None]
        results = []
        for score, label, box in zip(scores, labels, boxes):
            keep = score > self.min_score
            results.append({"scores": score[keep], "labels": label[keep], "boxes": box[keep]})
        return results


def main():
    torch.manual_seed(0)
    detector = torch.compile(Detector(DetrForObjectDetection(detr_config()).eval()), backend="eager")
    with torch.inference_mode():
        for height, width in ((64, 64), (64, 96)):
            results = detector(torch.rand(2, 3, height, width), torch.tensor([[480.0, 640.0], [360.0, 480.0]]))
            for result in results:
                print(result["labels"].tolist(), " ".join(f"{score:.4f}" for score in result["scores"].tolist()))


if __name__ == "__main__":
    main()
