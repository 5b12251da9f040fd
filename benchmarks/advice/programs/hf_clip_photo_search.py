"""Photo search with CLIP: rank photos for text queries, with a calibrated temperature and a rejection threshold."""

import torch
from torch import nn
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig


def clip_config():
    text = CLIPTextConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        projection_dim=24,
        eos_token_id=2,
        bos_token_id=1,
    )
    vision = CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        projection_dim=24,
    )
    return CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=24)


class PhotoSearch(nn.Module):
    def __init__(self, clip, threshold=0.32):
        super().__init__()
        self.clip = clip
        self.threshold = threshold

    def forward(self, pixel_values, input_ids):
        out = self.clip(pixel_values=pixel_values, input_ids=input_ids)
        cosine = out.text_embeds @ out.image_embeds.t()
        temperature = self.clip.logit_scale.exp().item()
        probabilities = (cosine * temperature).softmax(dim=-1)
        if probabilities.amax() < self.threshold:
            return torch.zeros_like(probabilities)
        return probabilities


def queries(count):
    ids = torch.randint(3, 50, (count, 8))
    ids[:, 0] = 1
    ids[:, -1] = 2
    return ids


def main():
    torch.manual_seed(0)
    search = torch.compile(PhotoSearch(CLIPModel(clip_config()).eval()), backend="eager")
    with torch.no_grad():
        for _ in range(3):
            photos = torch.rand(4, 3, 32, 32)
            probabilities = search(photos, queries(3))
            best = probabilities.max(dim=-1)
            print(best.indices.tolist(), " ".join(f"{value:.4f}" for value in best.values.tolist()))


if __name__ == "__main__":
    main()
