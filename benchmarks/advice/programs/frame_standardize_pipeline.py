"""A preprocessing pipeline of small compiled helpers for frames from several cameras (uint8 or float, NCHW or NHWC)."""
import torch

MEAN = torch.tensor([0.45, 0.45, 0.40])
STD = torch.tensor([0.22, 0.22, 0.25])


@torch.compile(backend="eager")
def to_unit(frames):
    if frames.dtype == torch.uint8:
        return frames.float() / 255
    return frames.float().clamp(0, 1)


@torch.compile(backend="eager")
def standardize(frames, roi=None):
    if roi is not None:
        frames = frames * roi
    return (frames - MEAN[:, None, None]) / STD[:, None, None]


@torch.compile(backend="eager")
def describe(frames, bins):
    gray = frames.mean(1)
    low = gray.min().item()
    high = gray.max().item()
    edges = torch.linspace(low, high, bins + 1)
    index = torch.bucketize(gray.flatten(1), edges[1:-1])
    return torch.nn.functional.one_hot(index, bins).float().mean(1)


class Camera:
    def __init__(self, name, kind, roi=None):
        self.name = name
        self.kind = kind
        self.roi = roi

    def grab(self, count=4, side=16):
        if self.kind == "usb":
            return torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)
        if self.kind == "depth":
            return torch.rand(count, 3, side, side, dtype=torch.float64)
        return torch.rand(count, 3, side, side)


def main():
    torch.manual_seed(17)
    roi = torch.ones(16, 16)
    roi[:4] = 0
    cameras = [Camera("door", "usb"), Camera("yard", "ip", roi), Camera("lift", "depth"), Camera("hall", "usb", roi)]
    for tick in range(2):
        for camera in cameras:
            frames = standardize(to_unit(camera.grab()), camera.roi)
            histogram = describe(frames, 8)
            print(f"{tick} {camera.name} mean {frames.mean().item():.2f} mode {histogram.mean(0).argmax().item()}")


if __name__ == "__main__":
    main()
