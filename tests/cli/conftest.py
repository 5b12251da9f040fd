"""Fixtures that run a program with and without dynx in a subprocess, as from a shell."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

COMPILES = """
import torch
f = torch.compile(lambda x: x + 1, backend="eager")
f(torch.ones(3))
"""


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program to a file and returns its path."""

    def write(source, name="program.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return path

    return write


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs Python with the given arguments in the temporary folder."""

    def run(*command, **options):
        environment = {**os.environ, "COLUMNS": "200", "PYTHONFAULTHANDLER": "0", **options.pop("env", {})}
        return subprocess.run(
            [sys.executable, *map(str, command)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
            timeout=600,
            **options,
        )

    return run


@pytest.fixture
def both(shell):
    """Return a function that runs a program with Python, then with `dynx run`, and returns both results."""

    def run(path, *arguments, **options):
        return shell(path, *arguments, **options), shell("-m", "dynx", "run", path, *arguments, **options)

    return run
