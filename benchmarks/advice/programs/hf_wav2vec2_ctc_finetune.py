"""Fine-tune a small wav2vec 2.0 with a CTC head on a few utterances."""

import numpy as np
import torch
import torch.nn.functional as F
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC


def make_model():
    config = Wav2Vec2Config(
        vocab_size=20,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        mask_time_prob=0.2,
        mask_time_length=3,
        ctc_loss_reduction="mean",
    )
    return Wav2Vec2ForCTC(config)


def make_batch():
    audio = torch.randn(2, 400)
    characters = torch.randint(1, 20, (2, 6))
    return {"input_values": audio, "labels": characters}


class Finetuner:
    def __init__(self, model, lr=1e-4):
        self.model = model.train()
        self.model.freeze_feature_encoder()
        self.encode = torch.compile(model.wav2vec2, backend="eager", fullgraph=True)
        trainable = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trainable, lr=lr)

    def ctc_loss(self, hidden, labels):
        log_probs = self.model.lm_head(hidden).log_softmax(-1).transpose(0, 1)
        frames = torch.full((len(labels),), log_probs.shape[0])
        lengths = torch.full((len(labels),), labels.shape[1])
        return F.ctc_loss(log_probs, labels, frames, lengths, blank=0)

    def step(self, batch):
        hidden = self.encode(batch["input_values"]).last_hidden_state
        loss = self.ctc_loss(hidden, batch["labels"])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    finetuner = Finetuner(make_model())
    for number in range(3):
        print(f"step {number} loss {finetuner.step(make_batch()):.4f}")


if __name__ == "__main__":
    main()
