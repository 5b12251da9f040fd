"""A speech tokenizer: a convolutional encoder, vector quantization with a custom straight-through Function, EMA statistics."""
import torch
from torch import nn


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, codes):
        distance = torch.cdist(z, codes)
        index = distance.argmin(-1)
        ctx.save_for_backward(index)
        ctx.mark_non_differentiable(index)
        return codes[index], index

    @staticmethod
    def backward(ctx, grad, _):
        return grad, None


class Quantizer(nn.Module):
    def __init__(self, codes=32, dim=8, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(codes, dim))
        self.register_buffer("usage", torch.ones(codes))
        self.dead_log = {}

    def forward(self, z):
        flat = z.transpose(1, 2).reshape(-1, z.shape[1])
        quantized, index = Straight.apply(flat, self.codes)
        if self.training:
            counts = torch.bincount(index, minlength=self.codes.shape[0]).float()
            self.usage.mul_(self.decay).add_(counts, alpha=1 - self.decay)
            dead = (self.usage < 0.5).sum().item()
            if dead > 4:
                self.dead_log[dead] = self.dead_log.get(dead, 0) + 1
        return quantized.view(z.shape[0], z.shape[2], -1).transpose(1, 2), index


class Tokenizer(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(1, dim, 8, stride=4), nn.GELU(), nn.Conv1d(dim, dim, 4, stride=2))
        self.quantizer = Quantizer(dim=dim)
        self.decoder = nn.Sequential(nn.ConvTranspose1d(dim, dim, 4, stride=2), nn.GELU(), nn.ConvTranspose1d(dim, 1, 8, stride=4))

    def forward(self, wave):
        z = self.encoder(wave)
        quantized, index = self.quantizer(z)
        return self.decoder(quantized), (z - quantized.detach()).pow(2).mean(), index


def utterances(count):
    for number in range(count):
        length = 4 * (60 + 10 * number)
        yield torch.sin(torch.linspace(0, 40 + number, length)).repeat(4, 1, 1) + 0.1 * torch.randn(4, 1, length)


def main():
    torch.manual_seed(30)
    model = Tokenizer()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for wave in utterances(5):
        out, commitment, _ = compiled(wave)
        loss = (out - wave[..., :out.shape[-1]]).abs().mean() + 0.25 * commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"length {wave.shape[-1]} loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
