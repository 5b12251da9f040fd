"""Write the snapshot of the installed torch: `python tests/seam/snapshot.py`, once per version, when a change is understood."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from dynx._torch.capabilities import signatures

if __name__ == "__main__":
    path = Path(__file__).parent / "signatures" / f"torch-{torch.__version__.partition('+')[0]}.json"
    path.write_text(json.dumps(signatures(), indent=1, sort_keys=True) + "\n")
    print(path)
