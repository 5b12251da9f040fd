"""LoRA wrapper; the adapter is switched off for the reference logits (DPO style)."""
from contextlib import contextmanager

import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=4, alpha=8):
        super().__init__()
        self.base = base
        self.base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(r, base.in_features) * 0.01)
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r
        self.enabled = True

    def forward(self, x):
        y = self.base(x)
        if self.enabled:  # DX114
            y = y + (x @ self.A.t() @ self.B.t()) * self.scale
        return y


class Policy(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.proj = LoRALinear(nn.Linear(dim, vocab))
        self.emb.requires_grad_(False)

    def forward(self, ids):
        h = self.emb(ids)  # DX106 [torch>=2.13]
        return self.proj(h).log_softmax(-1)

    @contextmanager
    def disable_adapter(self):
        self.proj.enabled = False
        try:
            yield
        finally:
            self.proj.enabled = True


def logp(fwd, ids):
    lp = fwd(ids[:, :-1])
    return lp.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)


def main():
    torch.manual_seed(0)
    policy = Policy()
    fwd = torch.compile(policy, backend="aot_eager")
    params = [p for p in policy.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=1e-3)
    for step in range(4):
        if step == 2:  # gradual unfreezing
            policy.emb.requires_grad_(True)
            opt.add_param_group({"params": policy.emb.parameters(), "lr": 1e-4})
        win = torch.randint(0, 40, (4, 9))
        lose = torch.randint(0, 40, (4, 9))
        with policy.disable_adapter():
            ref = (logp(fwd, win) - logp(fwd, lose)).detach()
        cur = logp(fwd, win) - logp(fwd, lose)
        loss = -nn.functional.logsigmoid(0.1 * (cur - ref)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", round(loss.item(), 4))


main()
