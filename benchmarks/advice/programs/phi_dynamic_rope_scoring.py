"""Ranks candidate answers with a Phi model by their length-normalised log-likelihood."""

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PhiConfig, PhiForCausalLM

CONTEXT = 24
PAD = 0


def build_model():
    config = PhiConfig(
        vocab_size=128,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )
    return PhiForCausalLM(config).eval()


def make_questions(count, rng):
    for _ in range(count):
        prompt = rng.integers(1, 128, size=rng.integers(6, 12))
        answers = [rng.integers(1, 128, size=rng.integers(3, 9)) for _ in range(4)]
        yield prompt, answers


def collate(prompt, answers):
    tokens = np.full((len(answers), CONTEXT), PAD, dtype=np.int64)
    weights = np.zeros((len(answers), CONTEXT), dtype=np.float32)
    for row, answer in enumerate(answers):
        tokens[row, : len(prompt)] = prompt
        tokens[row, len(prompt) : len(prompt) + len(answer)] = answer
        weights[row, len(prompt) : len(prompt) + len(answer)] = 1.0
    return torch.from_numpy(tokens), torch.from_numpy(weights)


class LoglikelihoodRanker:
    def __init__(self, model):
        self.model = torch.compile(model, backend="eager")

    @torch.no_grad()
    def score(self, tokens, weights):
        logits = self.model(input_ids=tokens, attention_mask=(tokens != PAD).long(), use_cache=False).logits
        logprobs = F.log_softmax(logits[:, :-1].float(), dim=-1)
        picked = logprobs.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return (picked * weights[:, 1:]).sum(dim=1) / weights.sum(dim=1)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    ranker = LoglikelihoodRanker(build_model())
    for number, (prompt, answers) in enumerate(make_questions(5, rng)):
        scores = ranker.score(*collate(prompt, answers))
        print(f"question {number}: best {scores.argmax().item()} scores {[round(s, 3) for s in scores.tolist()]}")


if __name__ == "__main__":
    main()
