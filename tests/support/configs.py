"""`cudagraphs.Config` for a device: CUDA where the device is one, the emulator on the CPU."""

from __future__ import annotations

import torch

from dynx import cudagraphs

RUNTIMES = {"cpu": "emulator", "cuda": "cuda"}


def config_for(device, **options):
    """Return a config whose runtime captures on `device`."""
    return cudagraphs.Config(runtime=RUNTIMES[device], **options)


def compiled(fn, device, *, dynamic=False, **options):
    """Compile `fn` with the backend; `options` are those of the config."""
    return torch.compile(fn, backend=cudagraphs.backend(config_for(device, **options)), dynamic=dynamic)
