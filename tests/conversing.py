"""Run the symbolic debugger with commands and return the transcript."""

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
    """Return the transcript of a session: load a program, and evaluate `call` in it with its `f` under the debugger.

    Numbers of guards and the reasons of graph breaks are replaced by `…`, because they differ between releases of torch.
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
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.chdir(folder):
        debugged = debug(program.f, script=commands, **options)
        try:
            print("=", eval(call, {**vars(program), "f": debugged}))
        except Exception as error:  # noqa: BLE001 - what the program raises is part of the transcript
            print(f"{type(error).__name__}")
    text = re.sub(r"\d+ guards?\b", "… guards", output.getvalue())
    text = re.sub(r"\b(0 nodes|1 node)\b", "0-1 nodes", text)  # an input is a node as soon as torch realizes it
    text = re.sub(r"graph break: .*", "graph break: …", text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def commands_in(transcript: str) -> list[str]:
    """Return the commands of a transcript."""
    return [line.removeprefix("(dynx) ") for line in transcript.splitlines() if line.startswith("(dynx) ")]
