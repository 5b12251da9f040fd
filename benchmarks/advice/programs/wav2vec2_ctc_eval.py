"""Ranks wav2vec2 checkpoints by their CTC loss and token error on a validation set."""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC, set_seed

VOCAB = {"<pad>": 0, "|": 1, "a": 2, "e": 3, "n": 4, "s": 5, "t": 6, "o": 7}
RATE = 1600


def synthesize(text):
    t = np.arange(RATE) / 16000
    wave = np.concatenate([np.sin(2 * np.pi * 200 * VOCAB[c] * t) for c in text])
    return torch.tensor((wave - wave.mean()) / np.sqrt(wave.var() + 1e-7), dtype=torch.float32)


def validation_batches(texts, size):
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        waves = torch.stack([synthesize(text) for text in part])
        labels = [torch.tensor([VOCAB[c] for c in text]) for text in part]
        yield waves, pad_sequence(labels, batch_first=True, padding_value=-100)


def collapse(ids):
    ids = torch.unique_consecutive(ids)
    return ids[ids != 0].tolist()


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


@torch.no_grad()
def evaluate(forward, batches):
    losses, errors, total = [], 0, 0
    for waves, labels in batches:
        out = forward(waves, labels=labels)
        losses.append(out.loss.item())
        for ids, target in zip(out.logits.argmax(-1), labels):
            target = target[target >= 0].tolist()
            errors += edit_distance(collapse(ids), target)
            total += len(target)
    return np.mean(losses), errors / total


def main():
    set_seed(0)
    config = Wav2Vec2Config(
        vocab_size=len(VOCAB),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_kernel=(10, 8, 4),
        conv_stride=(5, 8, 4),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        ctc_loss_reduction="mean",
        pad_token_id=0,
    )
    texts = ["sat|", "nose", "tone", "east", "oats", "ness"]
    model = Wav2Vec2ForCTC(config).eval()
    forward = torch.compile(model, backend="eager")
    start = {name: value.clone() for name, value in model.lm_head.state_dict().items()}
    for step, scale in [(1000, 0.5), (2000, 1.0), (3000, 2.0)]:
        model.lm_head.load_state_dict({name: value * scale for name, value in start.items()})
        loss, error = evaluate(forward, validation_batches(texts, 2))
        print(f"checkpoint-{step}: loss {loss:.3f} token error {error:.2f}")


if __name__ == "__main__":
    main()
