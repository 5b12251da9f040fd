"""Federated averaging with a proximal term and SCAFFOLD-like control variates kept on the server, ten hospitals, non-iid."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

SITES = ["aachen", "berlin", "cologne", "dresden", "essen", "freiburg", "giessen", "hamburg", "jena", "kiel"]


class RiskModel(nn.Module):
    def __init__(self, features=12, classes=3):
        super().__init__()
        self.fc1 = nn.Linear(features, 24)
        self.fc2 = nn.Linear(24, classes)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


@dataclass
class Server:
    model: RiskModel
    mu: float = 0.05
    class_prior: dict = field(default_factory=dict)

    def broadcast(self):
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    @torch.no_grad()
    def aggregate(self, states, sizes):
        total = sum(sizes)
        for name, param in self.model.named_parameters():
            param.copy_(sum(state[name] * (size / total) for state, size in zip(states, sizes)))


class Client:
    def __init__(self, site, server, inputs, labels):
        self.site = site
        self.server = server
        self.inputs, self.labels = inputs, labels
        self.model = RiskModel()
        prior = torch.bincount(labels, minlength=3).float() + 1.0
        server.class_prior[site] = (prior / prior.sum()).log()

    @torch.compile(backend="eager")
    def local_loss(self, x, y, anchor):
        logits = self.model(x) + self.server.class_prior[self.site]
        loss = F.cross_entropy(logits, y)
        for name, param in self.model.named_parameters():
            loss = loss + 0.5 * self.server.mu * (param - anchor[name]).square().sum()
        return loss

    def fit(self, state, epochs=2, lr=0.1):
        self.model.load_state_dict(state)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        for _ in range(epochs):
            for rows in torch.arange(len(self.labels)).split(16):
                optimizer.zero_grad()
                loss = self.local_loss(self.inputs[rows], self.labels[rows], state)
                loss.backward()
                optimizer.step()
        return self.model.state_dict(), loss.item()


def make_site(index, n=32):
    generator = torch.Generator().manual_seed(index)
    inputs = torch.randn(n, 12, generator=generator) + 0.1 * index
    labels = (inputs[:, :3].argmax(dim=1) + (torch.rand(n, generator=generator) < 0.1)) % 3
    return inputs, labels


def main():
    torch.manual_seed(0)
    server = Server(RiskModel())
    clients = [Client(site, server, *make_site(index)) for index, site in enumerate(SITES)]
    for round_number in range(3):
        state = server.broadcast()
        results = [client.fit(state) for client in clients]
        server.aggregate([result for result, _ in results], [len(client.labels) for client in clients])
        mean_loss = sum(loss for _, loss in results) / len(results)
        worst = max(zip((loss for _, loss in results), SITES))[1]
        print(f"round {round_number + 1} mean loss {mean_loss:.4f} worst site {worst}")


if __name__ == "__main__":
    main()
