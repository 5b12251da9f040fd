"""Decodes large latents tile by tile with overlapping, blended tiles, as the low-memory mode of an image VAE does."""

import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv2d(channels, channels, 3, 1, 1)

    def forward(self, x):
        return x + self.conv(F.silu(self.norm(x)))


class Decoder(nn.Module):
    def __init__(self, latent_channels=4, width=16):
        super().__init__()
        self.conv_in = nn.Conv2d(latent_channels, width, 3, 1, 1)
        self.blocks = nn.ModuleList(ResBlock(width) for _ in range(2))
        self.conv_out = nn.Conv2d(width, 3, 3, 1, 1)

    def forward(self, z):
        x = self.conv_in(z)
        for block in self.blocks:
            x = F.interpolate(block(x), scale_factor=2.0, mode="nearest")
        return self.conv_out(x).tanh()


class TiledVAE(nn.Module):
    scale = 4

    def __init__(self, tile=32, overlap=0.25):
        super().__init__()
        self.decoder = Decoder()
        self.tile = tile
        self.stride = int(tile * (1 - overlap))
        self.blend = int(tile * self.scale * overlap)
        self.decode_tile = torch.compile(self.decoder, backend="aot_eager")

    def blend_v(self, above, tile):
        extent = min(above.shape[2], tile.shape[2], self.blend)
        for y in range(extent):
            tile[:, :, y] = above[:, :, y - extent] * (1 - y / extent) + tile[:, :, y] * (y / extent)
        return tile

    def blend_h(self, left, tile):
        extent = min(left.shape[3], tile.shape[3], self.blend)
        for x in range(extent):
            tile[..., x] = left[..., x - extent] * (1 - x / extent) + tile[..., x] * (x / extent)
        return tile

    @torch.no_grad()
    def decode(self, z):
        rows = []
        for top in range(0, z.shape[2], self.stride):
            row = []
            for left in range(0, z.shape[3], self.stride):
                patch = z[:, :, top : top + self.tile, left : left + self.tile]
                row.append(self.decode_tile(patch.contiguous()))
            rows.append(row)
        limit, lines = self.stride * self.scale, []
        for i, row in enumerate(rows):
            line = []
            for j, tile in enumerate(row):
                if i > 0:
                    tile = self.blend_v(rows[i - 1][j], tile)
                if j > 0:
                    tile = self.blend_h(row[j - 1], tile)
                line.append(tile[:, :, :limit, :limit])
            lines.append(torch.cat(line, 3))
        return torch.cat(lines, 2)


def main():
    torch.manual_seed(0)
    vae = TiledVAE().eval()
    for height, width in ((68, 72), (72, 68)):
        image = vae.decode(torch.randn(1, 4, height, width))
        print(f"latent {height}x{width} -> image {tuple(image.shape)} mean {image.mean():.4f} std {image.std():.4f}")


if __name__ == "__main__":
    main()
