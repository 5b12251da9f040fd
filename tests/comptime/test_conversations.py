"""Transcripts of the symbolic debugger: each file in `conversations/` has a program, a call, and the exact transcript."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conversing import commands_in, converse

CONVERSATIONS = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


def test_at_least_fifteen_debugger_transcripts_are_saved():
    assert len(CONVERSATIONS) >= 15


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="transcripts show the bytecode of Python 3.11")
@pytest.mark.usefixtures("torch_names")
@pytest.mark.parametrize("file", CONVERSATIONS, ids=lambda file: file.stem)
def test_debugger_session_prints_its_saved_transcript(file, tmp_path):
    program, call, expected = file.read_text().split("---\n")
    assert converse(tmp_path, program, call.strip(), commands_in(expected)) == expected.rstrip("\n")
