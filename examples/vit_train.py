"""Train ViT of the transformers library (unmodified, random weights), with a validation pass after each epoch."""

import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
config = ViTConfig(
    hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=128, image_size=32, patch_size=8
)
model = ViTForImageClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
compiled = torch.compile(model, backend="eager")

for _ in range(2):
    model.train()
    for _ in range(3):
        images, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 2, (4,))
        loss = compiled(pixel_values=images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        compiled(pixel_values=torch.randn(4, 3, 32, 32))
print("trained 6 steps")
