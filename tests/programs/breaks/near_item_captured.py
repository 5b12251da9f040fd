"""With capture_scalar_outputs switched on, .item() is traced into the graph instead of breaking it."""
import torch

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager")
def rescale(x, peak):
    limit = peak.item()
    return x * limit + int(peak.ceil())


torch.manual_seed(0)
for _ in range(3):
    x = torch.randn(4)
    rescale(x, x.abs().max() + 2)
