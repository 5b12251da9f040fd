"""A chat server around a small Qwen2 model: one static KV cache a conversation, a warm-up at start, greedy replies."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, StaticCache

MAX_LEN = 24


class ChatEngine:
    def __init__(self, model):
        self.model = model.eval()
        self.conversations = {}
        self.step = torch.compile(self._step, backend="eager")

    def _step(self, token, position, cache):
        out = self.model(input_ids=token, position_ids=position, past_key_values=cache, use_cache=True)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    def new_cache(self):
        return StaticCache(config=self.model.config, max_cache_len=MAX_LEN)

    @torch.inference_mode()
    def warm_up(self):
        scratch = self.new_cache()
        token = torch.zeros(1, 1, dtype=torch.long)
        for place in range(4):
            token = self.step(token, torch.tensor([[place]]), scratch)

    @torch.no_grad()
    def reply(self, user, prompt, tokens):
        cache, used = self.conversations.setdefault(user, (self.new_cache(), 0))
        positions = torch.arange(used, used + len(prompt)).unsqueeze(0)
        out = self.model(input_ids=torch.tensor([prompt]), position_ids=positions, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        used += len(prompt)
        words = [token.item()]
        for _ in range(tokens - 1):
            token = self.step(token, torch.tensor([[used]]), cache)
            used += 1
            words.append(token.item())
        self.conversations[user] = (cache, used)
        return words


def main():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
    )
    engine = ChatEngine(Qwen2ForCausalLM(config))
    engine.warm_up()
    for user, turn in [("ana", [5, 9, 33, 7]), ("bo", [12, 80, 3, 41, 6]), ("ana", [60, 61, 62])]:
        print(user, turn, "->", engine.reply(user, turn, 6))


if __name__ == "__main__":
    main()
