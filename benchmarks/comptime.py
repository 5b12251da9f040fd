"""The cost of the tools of `dynx.comptime` while torch traces a transformer of 12 layers.

Two models are traced: a decoder in plain PyTorch, and GPT-2 of the transformers library, where more than half of the traced
instructions read its configuration, which torch traces quickly, so that the cost for each instruction weighs more.

python benchmarks/comptime.py [--out benchmarks/results/comptime.json]
Bounds: a probe that is armed but not hit 1.03x; post_mortem 1.03x; timeline 1.15x; the debugger's recorder 1.25x.
When no tool is in use there is no cost: no attribute of torch is wrapped.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import time

import torch
from pairs import out_option, ratio, report
from plain_transformer import Decoder
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

from dynx.comptime import post_mortem, probe, timeline
from dynx.comptime._debug_session import Session

FRAMES = range(0, 128, 8)  # each pair starts this many calls deeper in the stack, one after the other
LAYERS = 12  # with fewer, what a tool looks up once for each function weighs more than in a real model


def never_reached():
    return 1


def recorder():
    """Return a session of the debugger that never stops."""
    session = Session(["c"])
    session.debugger.stop = None
    return session


TOOLS = {
    "probe armed, not hit": (lambda: probe(never_reached), 1.03),
    "post_mortem": (post_mortem, 1.03),
    "timeline": (timeline, 1.15),
    "debugger's recorder": (recorder, 1.25),
}


def deeper(frames, function):
    """Call a function with more frames on the stack.

    Python keeps frames in chunks of 16 KiB. A function that is called at the end of a chunk allocates the next one, each time:
    the same trace takes up to 15 % longer at one depth of the stack than at another.
    """
    return function() if frames == 0 else deeper(frames - 1, function)


def trace_seconds(model, tool, *, is_used: bool) -> float:
    """Return the seconds of one compilation with the eager backend, almost all of which is tracing.

    The tool is entered in any case, and left before the compilation if it is not used: setting an attribute of a class makes
    Python forget what it knows about all attributes of its instances. Objects that exist before are frozen: a collection that
    visits all of torch takes a tenth of a trace, and happens in one half of a pair but not in the other.
    """
    torch._dynamo.reset()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    compiled = torch.compile(model, backend="eager")
    tokens = torch.ones(1, 8, dtype=torch.long)
    with contextlib.ExitStack() as open_tools, torch.no_grad():
        open_tools.enter_context(tool())
        if not is_used:
            open_tools.close()
        start = time.perf_counter()
        compiled(tokens)
        return time.perf_counter() - start


def gpt2() -> torch.nn.Module:
    """Return GPT-2 with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=LAYERS, n_embd=64, n_head=2, vocab_size=128, bos_token_id=0, eos_token_id=0))


def main() -> int:
    """Measure, print the table, and return 1 if a bound is missed or torch is not restored."""
    out = out_option(__doc__)
    originals = dict(vars(InstructionTranslatorBase))
    ratios = []
    models = ("plain", lambda: Decoder(LAYERS)), ("GPT-2", gpt2)
    for model_name, build in models:
        torch.manual_seed(0)
        model = build().eval()
        for name, (tool, bound) in TOOLS.items():
            depths = itertools.cycle(frames for frames in FRAMES for _ in range(2))  # the same for both halves of a pair
            halves = [
                lambda is_used=is_used, tool=tool, depths=depths, model=model: deeper(
                    next(depths), lambda: trace_seconds(model, tool, is_used=is_used)
                )
                for is_used in (True, False)
            ]
            ratios.append(ratio(f"trace time, {model_name}, {name}", *halves, bound=bound, pairs=2 * len(FRAMES)))
    wrapped = [name for name, value in originals.items() if vars(InstructionTranslatorBase)[name] is not value]
    print(f"attributes of torch that are still wrapped: {wrapped or 'none'}")
    return report("dynx.comptime against plain torch.compile", ratios, out) or bool(wrapped)


if __name__ == "__main__":
    sys.exit(main())
