"""Link prediction on a user-item graph: mini-batches of sampled edges per relation, GraphSAGE with mean aggregation."""

import torch
import torch.nn.functional as F
from torch import nn

RELATIONS = (("user", "clicks", "item"), ("user", "buys", "item"), ("item", "rev_clicks", "user"))


def maybe_num_nodes(edge_index, num_nodes=None):
    if num_nodes is not None:
        return num_nodes
    return int(edge_index.max()) + 1


def scatter_mean(source, index, size):
    total = source.new_zeros(size, source.shape[1]).index_add(0, index, source)
    degree = source.new_zeros(size).index_add(0, index, torch.ones_like(index, dtype=source.dtype))
    return total / degree.clamp(min=1).unsqueeze(1)


class HeteroSAGE(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.lin_l = nn.ModuleDict({name: nn.Linear(hidden, hidden, bias=False) for _, name, _ in RELATIONS})
        self.lin_r = nn.ModuleDict({kind: nn.Linear(hidden, hidden) for kind in ("user", "item")})

    def forward(self, x_dict, edge_index_dict):
        out = {kind: self.lin_r[kind](x) for kind, x in x_dict.items()}
        for (source, name, target), edge_index in edge_index_dict.items():
            row, col = edge_index
            neighbours = scatter_mean(x_dict[source][row], col, x_dict[target].shape[0])
            out[target] = out[target] + F.relu(self.lin_l[name](neighbours))
        return out


class LinkModel(nn.Module):
    def __init__(self, users, items, hidden=16):
        super().__init__()
        self.user = nn.Embedding(users, hidden)
        self.item = nn.Embedding(items, hidden)
        self.sage = HeteroSAGE(hidden)

    def forward(self, edge_index_dict, pairs):
        x_dict = self.sage({"user": self.user.weight, "item": self.item.weight}, edge_index_dict)
        score = (x_dict["user"][pairs[0]] * x_dict["item"][pairs[1]]).sum(dim=1)
        popularity = pairs.new_zeros(maybe_num_nodes(pairs[1]), dtype=score.dtype).index_add(0, pairs[1], torch.ones_like(score))
        return score - 0.1 * torch.log1p(popularity)[pairs[1]]


def sample_batch(generator, users, items, edges=64):
    batch = {}
    for source, name, target in RELATIONS:
        sizes = (users, items) if source == "user" else (items, users)
        if name == "buys" and torch.rand((), generator=generator) < 0.4:
            continue
        batch[source, name, target] = torch.stack([torch.randint(size, (edges,), generator=generator) for size in sizes])
    pairs = torch.stack([torch.randint(size, (32,), generator=generator) for size in (users, items)])
    return batch, pairs, ((pairs[0] + pairs[1]) % 3 == 0).float()


def main():
    torch.manual_seed(0)
    users, items = 40, 60
    model = LinkModel(users, items)
    score = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(5)
    for step in range(20):
        edge_index_dict, pairs, labels = sample_batch(generator, users, items)
        loss = F.binary_cross_entropy_with_logits(score(edge_index_dict, pairs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1:2d} positives {int(labels.sum())} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
