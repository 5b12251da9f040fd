"""A line is written to standard output, which is a file here."""

import contextlib
import os
import sys

import torch


@torch.compile(backend="eager")
def step(x):
    y = x * 2
    sys.stdout.write("step\n")  # DX201
    return y + 1


with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
    step(torch.ones(4))
