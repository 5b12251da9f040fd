"""Greedy chat replies from a small Llama with a growing key/value cache."""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

MAX_NEW_TOKENS = 6


class ChatSession:
    """Keeps the cache of one conversation and appends turns to it."""

    def __init__(self, model, forward):
        self.model = model
        self.forward = forward
        self.cache = DynamicCache(config=model.config)
        self.history = []

    def prefill(self, prompt_ids):
        out = self.forward(input_ids=prompt_ids, past_key_values=self.cache)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    def decode_one(self, token):
        out = self.forward(input_ids=token, past_key_values=self.cache)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    @torch.no_grad()
    def reply(self, prompt_ids):
        token = self.prefill(prompt_ids)
        tokens = [token]
        for _ in range(MAX_NEW_TOKENS - 1):
            token = self.decode_one(token)
            tokens.append(token)
        self.history.append(torch.cat(tokens, dim=1))
        return self.history[-1]


def build_model():
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config).eval()


def main():
    torch.manual_seed(0)
    model = build_model()
    compiled = torch.compile(model, backend="eager")
    session = ChatSession(model, compiled)
    for turn in range(2):
        prompt = torch.randint(0, 96, (1, 7))
        print(turn, session.reply(prompt).tolist())
    print("tokens in cache", int(session.cache.get_seq_length()))


if __name__ == "__main__":
    main()
