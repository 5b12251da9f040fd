"""Talk to the symbolic debugger and write down what it says."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import linecache
import re
import textwrap
from typing import Any

import torch

from dynx.comptime import debug


def converse(folder: Any, source: str, call: str, commands: list[str], **options: Any) -> str:
    """Give the transcript of a session over a program; `call` is evaluated in it, `f` under the debugger.

    What differs between releases of torch is left out: numbers of guards, and the words for a graph break.
    """
    torch._dynamo.reset()
    file = folder / "program.py"
    file.write_text("import torch\n" + textwrap.dedent(source).lstrip("\n"))
    linecache.checkcache()
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.chdir(folder):
        debugged = debug(program.f, script=commands, **options)
        try:
            print("=", eval(call, {**vars(program), "f": debugged}))
        except Exception as error:  # noqa: BLE001 - what the program raises is part of the transcript
            print(f"{type(error).__name__}")
    text = re.sub(r"\d+ guards?\b", "… guards", said.getvalue())
    text = re.sub(r"\b(0 nodes|1 node)\b", "0-1 nodes", text)  # an input counts as soon as torch looks at it
    text = re.sub(r"graph break: .*", "graph break: …", text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def commands_in(transcript: str) -> list[str]:
    """Give what was asked in a transcript."""
    return [line.removeprefix("(dynx) ") for line in transcript.splitlines() if line.startswith("(dynx) ")]
