"""An assert with a plain message on a tensor does not break: torch puts it into the graph as an asynchronous assertion."""
import torch


@torch.compile(backend="eager")
def log_density(x, scale):
    assert torch.all(scale > 0), "scale must be positive"
    z = x / scale
    return -0.5 * z.square() - scale.log()


torch.manual_seed(0)
log_density(torch.randn(4), torch.rand(4) + 0.1)
