"""Fine tune a tiny random GPT-2 with an evaluation after each epoch."""
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)


class LMWithHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.lm = GPT2LMHeadModel(cfg)
        self.drop = nn.Dropout(0.1)
        self.cls = nn.Linear(cfg.vocab_size, 2)

    def forward(self, input_ids):
        logits = self.lm(input_ids=input_ids, use_cache=False).logits  # DX107
        pooled = self.drop(logits.mean(1))
        return self.cls(pooled)


def batches(n, size=4, length=8):
    g = torch.Generator().manual_seed(1)
    for _ in range(n):
        ids = torch.randint(0, 60, (size, length), generator=g)
        yield ids, (ids.sum(1) % 2)


def train_epoch(model, opt):
    model.train()
    for ids, y in batches(3):
        loss = nn.functional.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def evaluate(model):
    model.eval()
    right = n = 0
    with torch.no_grad():
        for ids, y in batches(2):
            pred = model(ids).argmax(-1)  # DX108
            right += (pred == y).sum().item()
            n += len(y)
    return right / n


def confidence_gradient(model, net):
    """Gradient of the confidence w.r.t. the embeddings, in eval mode."""
    model.eval()
    ids, _ = next(batches(1))
    model(ids).max(-1).values.sum().backward()
    return net.lm.transformer.wte.weight.grad.norm().item()


def main():
    cfg = GPT2Config(vocab_size=60, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    net = LMWithHead(cfg)
    model = torch.compile(net, backend="eager")
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(2):
        loss = train_epoch(model, opt)
        print(epoch, round(loss, 3), evaluate(model))
    opt.zero_grad()
    print("saliency", confidence_gradient(model, net) > 0)


main()
