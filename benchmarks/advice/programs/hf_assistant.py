"""Chat completions from a small Llama that is built from its config, with a compiled forward."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

CONFIG = LlamaConfig(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


class BannedTokens(LogitsProcessor):
    """Forbids some tokens, and the end of the text before `min_new` tokens."""

    def __init__(self, banned, eos, prompt_length, min_new):
        self.banned = list(banned)
        self.eos = eos
        self.prompt_length = prompt_length
        self.min_new = min_new
        self.calls = 0

    @torch.compile(backend="eager")
    def __call__(self, input_ids, scores):
        self.calls += 1
        scores[:, self.banned] = -float("inf")
        if self.calls <= self.min_new:
            scores[:, self.eos] = -float("inf")
        return scores


def pad(prompts):
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    return ids, (ids != 0).long()


def complete(model, prompts, new_tokens):
    ids, mask = pad(prompts)
    processor = BannedTokens([3, 4, 5], CONFIG.eos_token_id, ids.shape[1], min_new=4)
    out = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=new_tokens,
        do_sample=False,
        logits_processor=LogitsProcessorList([processor]),
    )
    return out[:, ids.shape[1] :]


def main():
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).eval()
    model.forward = torch.compile(model.forward, backend="eager")
    conversations = [
        [[1, 17, 23, 42, 7], [1, 99, 12]],
        [[1, 8, 15, 16, 23, 42, 4, 11], [1, 6, 28]],
        [[1, 64, 65, 66], [1, 30, 31, 32, 33, 34, 35]],
    ]
    for prompts in conversations:
        for row in complete(model, prompts, new_tokens=8):
            print(row.tolist())


if __name__ == "__main__":
    main()
