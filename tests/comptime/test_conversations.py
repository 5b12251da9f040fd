"""Transcripts of the symbolic debugger: each file in `conversations/` has a program, a call, and the exact transcript."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversing import commands_in, converse

CONVERSATIONS = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


def test_conversations_exist():
    assert len(CONVERSATIONS) >= 15


@pytest.mark.parametrize("file", CONVERSATIONS, ids=lambda file: file.stem)
def test_transcript_is_unchanged(file, tmp_path):
    program, call, expected = file.read_text().split("---\n")
    assert converse(tmp_path, program, call.strip(), commands_in(expected)) == expected.rstrip("\n")
