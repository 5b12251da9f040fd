"""The loop prints the loss after each compiled step; the print is outside of the compiled function."""
import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)


@torch.compile(backend="eager")
def loss_fn(x, y):
    return (x @ w - y).square().mean()


for step in range(3):
    loss = loss_fn(torch.randn(4, 3), torch.randn(4))
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
    print(f"step {step}: loss {loss.item():.3f}")
