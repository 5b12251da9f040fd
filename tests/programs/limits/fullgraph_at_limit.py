"""With fullgraph=True, a call beyond the recompile limit raises."""

import torch


@torch.compile(backend="eager", fullgraph=True)
def scale(x, mode):
    return x * 2 if mode == "double" else x + 1  # DX301


try:
    for index in range(10):
        scale(torch.ones(4), f"mode {index}")
except Exception as error:
    print(error)
