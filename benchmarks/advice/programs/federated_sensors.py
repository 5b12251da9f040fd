"""Federated training: hospitals train a common model on their own sensors, a server averages the weights."""

import copy

import torch
from torch import nn

activity = {"backbone": 0.0}


class SensorNet(nn.Module):
    def __init__(self, sensors=10, width=16):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(sensors, width), nn.Tanh(), nn.Linear(width, width))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.backbone(x.to(self.head.weight.dtype)).relu())


def watch(module, args, output):
    """Forward hook: how active the backbone is."""
    activity["backbone"] = output.detach().abs().mean().item()


class Client:
    def __init__(self, name, data):
        self.name = name
        self.x, self.y = data

    def train(self, model, steps=3, lr=0.1):
        forward = torch.compile(model, backend="aot_eager")
        params = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(params, lr=lr)
        for _ in range(steps):
            loss = nn.functional.cross_entropy(forward(self.x), self.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()


class Server:
    def __init__(self, model, warmup=2):
        self.model = model
        self.warmup = warmup

    def round(self, number, clients):
        states, losses = [], []
        for client in clients:
            local = copy.deepcopy(self.model)
            # the pretrained backbone stays as it is in the first rounds
            local.backbone.requires_grad_(number >= self.warmup)
            losses.append(client.train(local))
            states.append(local.state_dict())
        average = {key: torch.stack([state[key] for state in states]).mean(0) for key in states[0]}
        self.model.load_state_dict(average)
        return sum(losses) / len(losses)


def make_data(seed, dtype):
    gen = torch.Generator().manual_seed(seed)
    x = torch.randn(24, 10, generator=gen)
    return x.to(dtype), (x[:, 0] + 0.5 * x[:, 1] > 0).long()


def main():
    torch.manual_seed(0)
    model = SensorNet()
    model.backbone.register_forward_hook(watch)
    server = Server(model)
    clients = [
        Client("north", make_data(1, torch.float32)),
        Client("south", make_data(2, torch.float64)),
        Client("west", make_data(3, torch.float32)),
    ]
    for number in range(4):
        loss = server.round(number, clients)
        print(f"round {number}: loss {loss:.4f}, activity {activity['backbone']:.3f}")


if __name__ == "__main__":
    main()
