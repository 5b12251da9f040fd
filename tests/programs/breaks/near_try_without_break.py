"""try/except in compiled code is fine as long as nothing in it breaks, even if the exception is raised and caught."""
import torch

SCALES = {"small": 0.1}


@torch.compile(backend="eager")
def scaled(x, params, key):
    try:
        factor = params[key]
    except KeyError:
        factor = 1.0
    try:
        return x @ x.t() * factor
    finally:
        x.mul_(factor)


torch.manual_seed(0)
scaled(torch.randn(3, 3), SCALES, "huge")
scaled(torch.randn(3, 3), SCALES, "huge")
