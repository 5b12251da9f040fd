"""Score candidate answers with Qwen3: each decoder block is compiled on its own to keep start-up short."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB = 90


def load():
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=10,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
    )
    model = Qwen3ForCausalLM(config).eval()
    for block in model.model.layers:
        block.compile(backend="eager")
    return model


def log_likelihood(model, question, answer):
    """Sum of the log-probabilities of the answer's tokens after the question."""
    input_ids = torch.cat([question, answer])[None]
    logits = model(input_ids=input_ids).logits
    predicted = logits[0, len(question) - 1 : -1].log_softmax(-1)
    return predicted.gather(1, answer[:, None]).sum()


def best_answer(model, question, answers):
    with torch.inference_mode():
        scores = torch.stack([log_likelihood(model, question, answer) for answer in answers])
    return int(scores.argmax()), scores.tolist()


def main():
    torch.manual_seed(0)
    model = load()
    for number in range(2):
        question = torch.randint(0, VOCAB, (8,))
        answers = torch.randint(0, VOCAB, (3, 4))
        best, scores = best_answer(model, question, answers)
        print(f"question {number}: answer {best}", " ".join(f"{score:.4f}" for score in scores))


if __name__ == "__main__":
    main()
