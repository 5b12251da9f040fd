"""Answers questions about images with a LLaVA-style model: patch features replace the <image> tokens of the prompt."""

import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel

IMAGE_TOKEN = 63
PATCHES = 4


class PatchEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 8, stride=8)
        self.project = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, pixels):
        return self.project(self.patch(pixels).flatten(2).transpose(1, 2))


class TinyLlava(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        config = LlamaConfig(
            vocab_size=64, hidden_size=dim, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64,
        )
        self.vision = PatchEncoder(dim)
        self.language = LlamaModel(config)
        self.head = nn.Linear(dim, 64, bias=False)

    def merge(self, input_ids, pixel_values):
        embeds = self.language.get_input_embeddings()(input_ids)
        features = torch.cat([self.vision(image.unsqueeze(0)).flatten(0, 1) for image in pixel_values])
        is_image = input_ids == IMAGE_TOKEN
        n_image_tokens = is_image.sum()
        if n_image_tokens != features.shape[0]:
            raise ValueError(f"{n_image_tokens} image tokens for {features.shape[0]} image features")
        mask = is_image.unsqueeze(-1).expand_as(embeds)
        return embeds.masked_scatter(mask, features.to(embeds.dtype))

    def forward(self, input_ids, attention_mask, pixel_values):
        embeds = self.merge(input_ids, pixel_values)
        hidden = self.language(inputs_embeds=embeds, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return self.head(hidden[:, -1])


class Processor:
    """Expands each <image> into its patch tokens and pads on the left."""

    def __init__(self, length):
        self.length = length

    def __call__(self, conversation):
        ids, images = [], []
        for part in conversation:
            if isinstance(part, torch.Tensor):
                images.append(part)
                ids += [IMAGE_TOKEN] * PATCHES
            else:
                ids += [1 + sum(map(ord, word)) % 62 for word in part.split()]
        input_ids = torch.zeros(1, self.length, dtype=torch.long)
        input_ids[0, -len(ids) :] = torch.tensor(ids)
        return {"input_ids": input_ids, "attention_mask": (input_ids != 0).long(), "pixel_values": images}


def main():
    torch.manual_seed(0)
    model = TinyLlava().eval()
    model.compile(backend="eager")
    processor = Processor(length=24)
    photo, chart, scan = torch.rand(3, 3, 16, 16)
    conversations = [
        [photo, "what is in this picture"],
        [chart, "which bar is the tallest one"],
        [photo, chart, "do these two show the same thing"],
        [photo, chart, scan, "order them by brightness"],
        [scan, "read the total amount"],
    ]
    for number, conversation in enumerate(conversations):
        with torch.no_grad():
            logits = model(**processor(conversation))
        top = logits[0].topk(3)
        print(number, top.indices.tolist(), [round(v, 3) for v in top.values.tolist()])


if __name__ == "__main__":
    main()
