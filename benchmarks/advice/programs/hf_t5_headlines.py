"""Headlines from a small T5: the encoder runs once, the decoder is compiled and called token by token."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

VOCAB = 80
HEADLINE = 5


def make_config():
    return T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )


class Headliner:
    def __init__(self, model):
        self.model = model
        self.decoder = torch.compile(model.decoder, backend="eager")

    def next_logits(self, hidden):
        return self.model.lm_head(hidden * self.model.model_dim**-0.5)

    @torch.no_grad()
    def write(self, article):
        memory = self.model.encoder(input_ids=article).last_hidden_state
        tokens = torch.full((len(article), 1), self.model.config.decoder_start_token_id)
        while tokens.shape[1] <= HEADLINE:
            out = self.decoder(
                input_ids=tokens,
                encoder_hidden_states=memory,
                use_cache=False,
            )
            logits = self.next_logits(out.last_hidden_state[:, -1])
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
        return tokens[:, 1:], logits.max().item()


def main():
    torch.manual_seed(0)
    headliner = Headliner(T5ForConditionalGeneration(make_config()).eval())
    for length in (10, 14, 9):
        headline, score = headliner.write(torch.randint(2, VOCAB, (1, length)))
        print(length, headline.tolist(), f"{score:.4f}")


if __name__ == "__main__":
    main()
