"""Write the snapshot of the installed torch: `python tests/seam/snapshot.py`, once per version, when a change is understood."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from dynx._torch.capabilities import ATTRIBUTES, HOOK_POINTS, OPTIONAL_ATTRIBUTES, TOOL_POINTS, capability


def signatures() -> dict[str, list[str]]:
    """Return the parameters or type of each hook point and attribute by path.

    Attributes that depend on the build of torch (`CUDA_ATTRIBUTES`) are left out.
    """
    points = (point.name for point in (*HOOK_POINTS, *TOOL_POINTS))
    return {entry.path: list(entry.found) for entry in map(capability, (*points, *ATTRIBUTES, *OPTIONAL_ATTRIBUTES))}


if __name__ == "__main__":
    path = Path(__file__).parent / "signatures" / f"torch-{torch.__version__.partition('+')[0]}.json"
    path.write_text(json.dumps(signatures(), indent=1, sort_keys=True) + "\n")
    print(path)
