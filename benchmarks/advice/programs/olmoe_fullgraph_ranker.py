"""Ranks candidate answers by their log-likelihood under a small OLMoE model."""

import torch
from transformers import OlmoeConfig, OlmoeForCausalLM

LENGTH = 16


def load_model():
    config = OlmoeConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        experts_implementation="eager",
    )
    return OlmoeForCausalLM(config).eval()


class Ranker:
    def __init__(self, model):
        self.model = model
        self.score = torch.compile(self._score, backend="eager", fullgraph=True)

    def _score(self, ids, answer_mask):
        logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1]
        logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        return (logprobs * answer_mask[:, 1:]).sum(-1) / answer_mask[:, 1:].sum(-1)

    @torch.no_grad()
    def rank(self, question, answers):
        ids = torch.zeros(len(answers), LENGTH, dtype=torch.long)
        mask = torch.zeros(len(answers), LENGTH)
        for row, answer in enumerate(answers):
            text = question + answer
            ids[row, : len(text)] = torch.tensor(text)
            mask[row, len(question) : len(text)] = 1
        scores = self.score(ids, mask)
        order = scores.argsort(descending=True)
        return [(answers[i], round(scores[i].item(), 3)) for i in order.tolist()]


def main():
    torch.manual_seed(0)
    ranker = Ranker(load_model())
    questions = [
        ([5, 17, 33], [[8, 9], [40, 41, 42], [3], [60, 61, 62, 63]]),
        ([22, 4, 19, 51], [[7, 7], [12, 30, 31], [55], [1, 2, 3, 4]]),
    ]
    for question, answers in questions:
        print(question)
        for answer, score in ranker.rank(question, answers):
            print(f"  {score:.3f} {answer}")


if __name__ == "__main__":
    main()
