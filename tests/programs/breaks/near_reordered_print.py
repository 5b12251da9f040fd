"""print is registered as a reorderable logging function, so torch moves it behind the graph instead of breaking it."""
import torch

torch._dynamo.config.reorderable_logging_functions.add(print)


def residual(x, y):
    r = x - y
    print("residual", r.shape[0])
    return r.square()


@torch.compile(backend="eager")
def objective(x, y):
    return residual(x, y).sum() + residual(y, x).mean()


torch.manual_seed(0)
objective(torch.randn(4), torch.randn(4))
