"""Recurrent denoiser for clips: chunks of frames go through one compiled module that carries the last frame over."""

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 8


def fake_clip(frames, height, width, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (frames, height, width, 3), generator=g, dtype=torch.uint8)


def rearrange(x, pattern, **sizes):
    """The two patterns of einops that the model needs, so that it has no dependency."""
    left, right = (side.strip() for side in pattern.split("->"))
    if left == "t h w c" and right == "t c h w":
        return x.permute(0, 3, 1, 2)
    if left == "t (k c) h w" and right == "(t k) c h w":
        t, kc, h, w = x.shape
        return x.reshape(t * sizes["k"], kc // sizes["k"], h, w)
    raise NotImplementedError(pattern)  # the program has only the patterns above


class Denoiser(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Conv2d(6, width, 3, padding=1)
        self.body = nn.Conv2d(width, width, 3, padding=1)
        self.tail = nn.Conv2d(width, 3, 3, padding=1)
        self.last = None
        self.activity = []
        self.body.register_forward_hook(self.watch)

    def watch(self, module, inputs, output):
        """Mean activation of the body, for the dashboard."""
        self.activity.append(output.abs().mean().item())

    def forward(self, frames, strength):
        x = rearrange(frames, "t h w c -> t c h w").float() / 255.0
        if self.last is None:
            previous = x[:1]
        else:
            previous = self.last
        shifted = torch.cat([previous, x[:-1]])
        hidden = F.silu(self.head(torch.cat([x, shifted], dim=1)))
        hidden = F.silu(self.body(hidden)) + hidden
        out = x - strength * self.tail(hidden)
        self.last = x[-1:].detach()
        return out.clamp(0.0, 1.0)

    def reset(self):
        self.last = None


def chunks(clip):
    for start in range(0, len(clip), CHUNK):
        yield clip[start : start + CHUNK]


def psnr(a, b):
    return -10.0 * torch.log10(F.mse_loss(a, b))


def main():
    torch.manual_seed(0)
    model = Denoiser().eval()
    denoise = torch.compile(model, backend="aot_eager", dynamic=False)
    clips = [fake_clip(19, 16, 24, 1), fake_clip(21, 16, 24, 2)]
    with torch.no_grad():
        for number, clip in enumerate(clips):
            model.reset()
            outputs = [denoise(chunk, 0.5) for chunk in chunks(clip)]
            restored = torch.cat(outputs)
            reference = clip.permute(0, 3, 1, 2).float() / 255.0
            print(f"clip {number}: {len(restored)} frames, psnr {psnr(restored, reference):.2f} dB")
    print("activity", [f"{v:.3f}" for v in model.activity])


if __name__ == "__main__":
    main()
