"""Fine-tunes a tiny wav2vec 2.0 with a CTC head on synthetic tones, with time masking as augmentation."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import Wav2Vec2Config, Wav2Vec2Model


class SpeechRecognizer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wav2vec2 = Wav2Vec2Model(config)
        self.wav2vec2.freeze_feature_encoder()
        self.dropout = nn.Dropout(config.final_dropout)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, input_values):
        hidden = self.wav2vec2(input_values).last_hidden_state
        return self.lm_head(self.dropout(hidden))


def build_config():
    return Wav2Vec2Config(
        vocab_size=12,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 4, 2),
        conv_kernel=(10, 8, 4),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        mask_time_prob=0.3,
        mask_time_length=4,
    )


def tones(batch, rng, samples=1600, length=5):
    labels = torch.randint(1, 12, (batch, length), generator=rng)
    t = torch.arange(samples) / 1600
    steps = (t * length).long().clamp(max=length - 1)
    wave = torch.sin(2 * torch.pi * (20 + 10 * labels[:, steps]) * t)
    return wave + 0.05 * torch.randn(batch, samples, generator=rng), labels


def ctc_loss(logits, labels):
    log_probs = logits.log_softmax(-1).transpose(0, 1)
    frames = torch.full((len(labels),), log_probs.shape[0])
    return F.ctc_loss(log_probs, labels, frames, torch.full((len(labels),), labels.shape[1]))


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    rng = torch.Generator().manual_seed(1)
    model = SpeechRecognizer(build_config()).train()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    history = []
    for _ in range(6):
        waves, labels = tones(4, rng)
        loss = ctc_loss(compiled(waves), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        history.append(loss.item())
    print(f"{len(history)} steps, finite: {bool(np.isfinite(history).all())}, loss fell: {history[-1] < history[0]}")


if __name__ == "__main__":
    main()
