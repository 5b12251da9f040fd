"""The same torch.while_loop refinement, but the user vouched for the operator in unsafe_marked_cacheable_functions, so nothing is bypassed."""
import os
import tempfile

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
import torch

torch._inductor.config.unsafe_marked_cacheable_functions = {
    "torch.ops.higher_order.while_loop": "v1",
}
TOLERANCE = 0.05


def not_converged(step, value):
    return (step < 6) & (value.abs().max() > TOLERANCE)


def relax(step, value):
    return step + 1, value * 0.5


def refine(step, value):
    start = value - value.mean()
    step, value = torch.while_loop(not_converged, relax, (step, start))
    return step, value + 1.0


fast_refine = torch.compile(refine, backend="inductor")
for seed in range(2):
    torch.manual_seed(seed)
    steps, out = fast_refine(torch.tensor(0), torch.randn(4))
    assert int(steps) <= 6 and out.shape == (4,)
