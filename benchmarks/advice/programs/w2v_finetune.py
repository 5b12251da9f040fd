"""Fine-tunes a small Wav2Vec2 CTC model on synthetic speech with SpecAugment, compiled as one graph."""

import numpy as np
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

SAMPLES = 4000
LABELS = 6


def build_model():
    config = Wav2Vec2Config(
        vocab_size=12, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=(16, 16, 16), conv_kernel=(10, 8, 4), conv_stride=(5, 4, 2), num_feat_extract_layers=3,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_prob=0.3, mask_time_length=4,
        layerdrop=0.0, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, feat_proj_dropout=0.0,
        final_dropout=0.0, ctc_loss_reduction="mean", pad_token_id=0,
    )
    model = Wav2Vec2ForCTC(config)
    model.freeze_feature_encoder()
    return model


def speech_batches(count, rng):
    for _ in range(count):
        labels = rng.integers(1, 12, size=(4, LABELS))
        pitch = np.repeat(labels, SAMPLES // LABELS + 1, axis=1)[:, :SAMPLES]
        audio = np.sin(np.cumsum(0.02 * pitch, axis=1)) + 0.05 * rng.standard_normal((4, SAMPLES))
        yield {
            "input_values": torch.tensor(audio, dtype=torch.float32),
            "labels": torch.tensor(labels),
        }


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model.train()
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
        self.train_forward = torch.compile(self.logits, backend="eager", fullgraph=True)

    def logits(self, input_values):
        return self.model(input_values=input_values).logits

    def ctc_loss(self, logits, labels):
        log_probs = logits.log_softmax(-1).transpose(0, 1)
        frames = torch.full((len(labels),), log_probs.size(0), dtype=torch.long)
        lengths = torch.full((len(labels),), labels.size(1), dtype=torch.long)
        return torch.nn.functional.ctc_loss(log_probs, labels, frames, lengths, zero_infinity=True)

    def step(self, batch):
        loss = self.ctc_loss(self.train_forward(batch["input_values"]), batch["labels"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    trainer = Trainer(build_model())
    for number, batch in enumerate(speech_batches(5, np.random.default_rng(0))):
        print(f"step {number} loss {trainer.step(batch):.3f}")


if __name__ == "__main__":
    main()
