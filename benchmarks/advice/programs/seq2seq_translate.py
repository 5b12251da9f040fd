"""Translates a few sentences with a tiny T5: the encoder runs once, then a compiled decoder step extends the output greedily."""

import torch
from transformers import DynamicCache, EncoderDecoderCache, T5Config, T5ForConditionalGeneration

SOURCE_LENGTH = 10
PAD, EOS, START = 0, 1, 2


class WordTokenizer:
    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def encode(self, sentences):
        ids = torch.full((len(sentences), SOURCE_LENGTH), PAD)
        for row, sentence in enumerate(sentences):
            words = [3 + sum(map(ord, word)) % (self.vocabulary - 3) for word in sentence.split()]
            ids[row, : len(words) + 1] = torch.tensor(words + [EOS])
        return ids

    def decode(self, row):
        ids = row.tolist()
        return " ".join(f"w{token}" for token in (ids[: ids.index(EOS)] if EOS in ids else ids))


def build_model():
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=4,
        decoder_start_token_id=START, pad_token_id=PAD, eos_token_id=EOS, dropout_rate=0.0, initializer_factor=4.0,
        tie_word_embeddings=False,
    )
    return T5ForConditionalGeneration(config).eval()


class Translator:
    def __init__(self, model, tokenizer, max_new_tokens):
        self.model = model
        self.tokenizer = tokenizer
        self.max_new_tokens = max_new_tokens
        self.step = torch.compile(self.decode_step, backend="eager", dynamic=True)

    def decode_step(self, tokens, memory, memory_mask, cache):
        out = self.model(
            decoder_input_ids=tokens,
            encoder_outputs=(memory,),
            attention_mask=memory_mask,
            past_key_values=cache,
            use_cache=True,
        )
        return out.logits[:, -1].argmax(-1, keepdim=True)

    @torch.inference_mode()
    def __call__(self, sentences):
        ids = self.tokenizer.encode(sentences)
        mask = (ids != PAD).long()
        memory = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        tokens = torch.full((len(sentences), 1), START)
        output = []
        for _ in range(self.max_new_tokens):
            tokens = self.step(tokens, memory, mask, cache)
            output.append(tokens)
        return [self.tokenizer.decode(row) for row in torch.cat(output, 1)]


def main():
    torch.manual_seed(0)
    translator = Translator(build_model(), WordTokenizer(64), max_new_tokens=6)
    for batch in (["the cat sat on the mat", "where is the station"], ["i like green tea", "good night"]):
        for source, target in zip(batch, translator(batch)):
            print(f"{source} -> {target}")


if __name__ == "__main__":
    main()
