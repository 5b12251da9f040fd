"""The cost of names of symbols by their source, and of reading a profile.

python benchmarks/symbols.py [--out benchmarks/results/symbols-cpu.json]
Bounds: a number from the scheme blake63 takes 1.5 times as long as torch's own; a profile of 1000 functions with 5 sources each
loads in 50 ms in a process without torch (the fastest of five, as other programs run meanwhile). Milliseconds depend on the
machine, so the time is measured beside `json.loads` of the same file too: 6 times as long, since each value is checked.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pairs import out_option, ratio, report
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dynx import pgo, symbols
from dynx.records import FrameProfile, Seen, SourceProfile

_LOAD = """
import json, sys, timeit
from pathlib import Path
from dynx import pgo
path = Path(sys.argv[1])
print(1000 * min(timeit.repeat(lambda: {read}, number=1, repeat=5)))
assert "torch" not in sys.modules
"""
SOURCES = [
    f"L['self']._modules['layers']._modules['{layer}']._buffers['cache'].size()[{dim}]" for layer in range(20) for dim in (0, 1)
]


def seconds_of_numbers(scheme: str | None) -> float:
    """Return the seconds in which 500 environments number 40 sources each; few collide among torch's hundred numbers."""
    handle = symbols.install(scheme) if scheme is not None else None
    try:
        environments = [ShapeEnv() for _ in range(500)]
        start = time.perf_counter()
        for environment in environments:
            number = environment._generate_unique_id
            for source in SOURCES:
                number(source)
        return time.perf_counter() - start
    finally:
        if handle is not None:
            handle.remove()


def profile_of(functions: int) -> pgo.Profile:
    """Return a profile in which each function has five tensors with a dynamic size."""
    seen = (Seen(0, 4, "A", "0/0"), Seen(0, 6, "A", "0/1"))
    sources = {f"L['x{index}']": SourceProfile("dynamic", ("dynamic", 16), (16, 1), seen) for index in range(5)}
    frames = (FrameProfile(f"/train/model_{n}.py", f"{n:08x}", "forward", 12, sources=sources) for n in range(functions))
    return pgo.Profile(tuple(frames), {"A": "2026-11-23T09:00:00 train.py"}, ("2.13.0",))


def main() -> int:
    out = out_option(__doc__)
    path = Path(tempfile.mkdtemp()) / "profile.json"
    profile_of(1000).save(path)

    def milliseconds_of(read: str) -> float:
        done = subprocess.run([sys.executable, "-c", _LOAD.format(read=read), path], text=True, capture_output=True, check=True)
        return float(done.stdout)

    def load() -> float:
        return milliseconds_of("pgo.Profile.load(path)")

    def json_loads() -> float:
        return milliseconds_of("json.loads(path.read_bytes())")

    measured = [
        ratio("numbers of symbols", lambda: seconds_of_numbers("blake63"), lambda: seconds_of_numbers(None), bound=1.5),
        ratio("load a profile, beside json.loads", load, json_loads, bound=6, pairs=11),
    ]
    return report("symbols and profiles", measured, out)


if __name__ == "__main__":
    sys.exit(main())
