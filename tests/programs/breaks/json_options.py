"""The options are parsed in the compiled function."""

import json

import torch


@torch.compile(backend="eager")
def scale(x, text):
    options = json.loads(text)  # DX204
    return x * options["scale"]


scale(torch.ones(4), '{"scale": 2}')
