"""L-BFGS with a backtracking line search on a logistic regression; the direction and the search are compiled."""

import torch


def make_data(rows, columns):
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    truth = torch.randn(columns, generator=generator, dtype=torch.float64)
    labels = (features @ truth + 0.5 * torch.randn(rows, generator=generator, dtype=torch.float64) > 0).double()
    return features, labels


def objective(weights, features, labels):
    logits = features @ weights
    fit = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return fit + 1e-2 * weights.dot(weights)


def gradient(weights, features, labels):
    error = torch.sigmoid(features @ weights) - labels
    return features.T @ error / labels.numel() + 2e-2 * weights


@torch.compile(backend="eager")
def two_loop(grad, pairs):
    """The direction -H g from the last pairs (s, y) of steps and differences of gradients."""
    q = grad
    coefficients = []
    for s, y in reversed(pairs):
        alpha = s.dot(q) / y.dot(s)
        coefficients.append(alpha)
        q = q - alpha * y
    if pairs:
        s, y = pairs[-1]
        q = q * (s.dot(y) / y.dot(y))
    for (s, y), alpha in zip(pairs, reversed(coefficients)):
        q = q + s * (alpha - y.dot(q) / y.dot(s))
    return -q


@torch.compile(backend="eager")
def backtrack(weights, direction, grad, features, labels):
    """Halve the step until Armijo's condition holds."""
    start = objective(weights, features, labels)
    slope = grad.dot(direction)
    step = 1.0
    for _ in range(10):
        trial = weights + step * direction
        if objective(trial, features, labels) <= start + 1e-4 * step * slope:
            break
        step = step * 0.5
    return trial


def minimise(features, labels, memory=4, iterations=10):
    weights = torch.zeros(features.shape[1], dtype=features.dtype)
    grad = gradient(weights, features, labels)
    pairs = []
    for iteration in range(iterations):
        direction = two_loop(grad, pairs)
        new = backtrack(weights, direction, grad, features, labels)
        new_grad = gradient(new, features, labels)
        pairs.append((new - weights, new_grad - grad))
        pairs = pairs[-memory:]
        weights, grad = new, new_grad
        if iteration % 3 == 0:
            print(f"{iteration:2d}: loss {objective(weights, features, labels):.6f}, |g| {grad.norm():.2e}")
    return weights


def main():
    features, labels = make_data(200, 12)
    weights = minimise(features, labels)
    accuracy = ((features @ weights > 0).double() == labels).double().mean()
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
