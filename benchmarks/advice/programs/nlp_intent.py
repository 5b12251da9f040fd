"""Intent classification for a support chat: a small bag-of-ngrams encoder, trained with decaying label smoothing."""

import logging
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

logging.basicConfig(level=logging.WARNING)
logger = logging.getLogger("intent")


@dataclass
class TrainConfig:
    vocab: int = 120
    width: int = 24
    classes: int = 5
    epochs: int = 7
    smoothing: float = 0.2
    smoothing_decay: float = 0.5
    lr: float = 0.05


class IntentClassifier(nn.Module):
    def __init__(self, cfg: TrainConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width, padding_idx=0)
        self.conv = nn.Conv1d(cfg.width, cfg.width, 3, padding=1)
        self.head = nn.Linear(cfg.width, cfg.classes)

    def forward(self, tokens, lengths):
        if (lengths < 1).any():
            raise ValueError("an utterance is empty")
        hidden = self.conv(self.embed(tokens).transpose(1, 2)).relu()
        mask = torch.arange(tokens.shape[1])[None, :] < lengths[:, None]
        pooled = (hidden * mask[:, None, :]).sum(-1) / lengths[:, None]
        logger.info("pooled features of %d utterances", tokens.shape[0])
        return self.head(pooled)


class Trainer:
    def __init__(self, model, cfg):
        self.model = model
        self.cfg = cfg
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
        self.loss = torch.compile(self._loss, backend="aot_eager")

    def _loss(self, logits, intents):
        log_probs = F.log_softmax(logits, dim=-1)
        target = F.one_hot(intents, self.cfg.classes).float()
        if self.cfg.smoothing > 0.01:
            target = target * (1 - self.cfg.smoothing) + self.cfg.smoothing / self.cfg.classes
        return -(target * log_probs).sum(-1).mean()

    def epoch(self, batches):
        total = 0.0
        for tokens, lengths, intents in batches:
            loss = self.loss(self.model(tokens, lengths), intents)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        self.cfg.smoothing *= self.cfg.smoothing_decay
        return total / len(batches)


def make_batches(cfg, n=4, size=16, longest=20):
    gen = torch.Generator().manual_seed(3)
    for _ in range(n):
        lengths = torch.randint(3, longest + 1, (size,), generator=gen)
        tokens = torch.randint(1, cfg.vocab, (size, longest), generator=gen)
        tokens = tokens * (torch.arange(longest)[None, :] < lengths[:, None])
        yield tokens, lengths, tokens[:, 0] % cfg.classes


def main():
    torch.manual_seed(0)
    cfg = TrainConfig()
    model = torch.compile(IntentClassifier(cfg), backend="aot_eager")
    trainer = Trainer(model, cfg)
    batches = list(make_batches(cfg))
    for epoch in range(cfg.epochs):
        print(f"epoch {epoch}: loss {trainer.epoch(batches):.3f}")


if __name__ == "__main__":
    main()
