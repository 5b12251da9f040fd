"""Options, time and context variable are read outside the compiled function."""

import json
from contextvars import ContextVar
from datetime import datetime

import torch

scale = ContextVar("scale", default=2)


@torch.compile(backend="eager")
def step(x, options, factor):
    return x * options["scale"] * factor


started = datetime.now()
step(torch.ones(4), json.loads('{"scale": 2}'), scale.get())
duration = datetime.now() - started
