"""Train a small Mixtral on next-token prediction, its routers with a higher learning rate."""

import torch
from transformers import MixtralConfig, MixtralForCausalLM


def make_model():
    config = MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=None,
        experts_implementation="eager",
    )
    return MixtralForCausalLM(config)


def parameter_groups(model):
    routers = [p for name, p in model.named_parameters() if "gate.weight" in name]
    chosen = {id(p) for p in routers}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [{"params": routers, "lr": 0.1}, {"params": others, "lr": 0.01}]


def main():
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.SGD(parameter_groups(model))
    train = torch.compile(model, backend="eager")
    for step in range(3):
        input_ids = torch.randint(0, 64, (2, 12))
        labels = input_ids.clone()
        labels[:, :2] = -100
        out = train(input_ids=input_ids, labels=labels, use_cache=False)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {out.loss.item():.4f}")


if __name__ == "__main__":
    main()
