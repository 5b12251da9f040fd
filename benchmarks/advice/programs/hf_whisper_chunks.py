"""Transcribe recordings of different lengths with Whisper: fixed chunks, compiled encoder, greedy decoder."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

MELS = 8
FRAMES = 40


def make_model():
    config = WhisperConfig(
        vocab_size=60,
        num_mel_bins=MELS,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=FRAMES // 2,
        max_target_positions=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config).eval()


def chunks(features):
    """Cut a (mels, frames) spectrogram into chunks of FRAMES, the last padded with silence."""
    for start in range(0, features.shape[1], FRAMES):
        chunk = features[:, start : start + FRAMES]
        yield torch.nn.functional.pad(chunk, (0, FRAMES - chunk.shape[1]))


class Transcriber:
    def __init__(self, model):
        self.model = model
        self.model.model.encoder = torch.compile(model.model.encoder, backend="eager", fullgraph=True)

    @torch.inference_mode()
    def __call__(self, features):
        text, energy = [], []
        for chunk in chunks(features):
            memory = self.model.model.encoder(chunk[None], return_dict=True)
            energy.append(memory.last_hidden_state.abs().mean().item())
            tokens = torch.tensor([[3, 5, 7]])
            for _ in range(4):
                logits = self.model(encoder_outputs=memory, decoder_input_ids=tokens).logits
                tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
            text.append(tokens[0, 3:].tolist())
        return text, energy


def main():
    torch.manual_seed(0)
    transcriber = Transcriber(make_model())
    for seconds in (90, 40, 55):
        text, energy = transcriber(torch.randn(MELS, seconds))
        print(seconds, text, " ".join(f"{value:.4f}" for value in energy))


if __name__ == "__main__":
    main()
