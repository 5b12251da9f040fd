"""Answer prompts with a small GPT-2, generating greedily with its cache; one compiled method serves prefill and decoding."""

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel


def build():
    config = GPT2Config(
        vocab_size=48, n_positions=64, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=1,
    )
    return GPT2LMHeadModel(config).eval()


class Server:
    def __init__(self, model):
        self.model = model
        self.decode = torch.compile(self._decode, backend="eager")

    def _decode(self, token, cache):
        out = self.model(input_ids=token, past_key_values=cache, use_cache=True)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    def generate(self, prompt, new_tokens):
        cache = DynamicCache(config=self.model.config)
        token = self.decode(prompt, cache)
        tokens = [token]
        while len(tokens) < new_tokens:
            token = self.decode(token, cache)
            tokens.append(token)
        return torch.cat(tokens, 1)


def main():
    torch.manual_seed(0)
    server = Server(build())
    gen = torch.Generator().manual_seed(1)
    total = 0
    with torch.inference_mode():
        for length in (6, 9, 7):
            prompt = torch.randint(2, 48, (2, length), generator=gen)
            answer = server.generate(prompt, 5)
            total += answer.numel()
    print(f"{total} tokens generated, last {answer[0].tolist()}")


if __name__ == "__main__":
    main()
