"""Fine-tunes RoBERTa for entity tagging with gradual unfreezing: first the head, then the layers from the top."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import RobertaConfig, RobertaForTokenClassification

STAGES = [
    ("classifier",),
    ("classifier", "roberta.encoder.layer.1"),
    ("classifier", "roberta.encoder.layer.1", "roberta.encoder.layer.0"),
]


def make_data(count=24, length=12):
    tokens = torch.randint(3, 60, (count, length))
    tags = (tokens % 3).where(tokens > 20, 0)
    return TensorDataset(tokens, tags)


def build_model():
    config = RobertaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=3,
        pad_token_id=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return RobertaForTokenClassification(config)


class Finetuner:
    def __init__(self, model, lr=3e-3):
        self.model = model
        self.forward = torch.compile(model, backend="eager")
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)

    def unfreeze(self, prefixes):
        for name, param in self.model.named_parameters():
            param.requires_grad = name.startswith(prefixes)

    def train_epoch(self, loader):
        total = 0.0
        for tokens, tags in loader:
            loss = self.forward(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tags).loss
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            total += loss.item()
        return total / len(loader)


def main():
    torch.manual_seed(0)
    tuner = Finetuner(build_model().train())
    loader = DataLoader(make_data(), batch_size=8, drop_last=True)
    for stage, prefixes in enumerate(STAGES):
        tuner.unfreeze(prefixes)
        for epoch in range(2):
            print(f"stage {stage} epoch {epoch} loss {tuner.train_epoch(loader):.4f}")


if __name__ == "__main__":
    main()
