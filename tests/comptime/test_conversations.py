"""Conversations with the symbolic debugger, word for word: `conversations/` has a program, a call, and what was said."""

from __future__ import annotations

from pathlib import Path

import pytest
from conversing import commands_in, converse

CONVERSATIONS = sorted((Path(__file__).parent / "conversations").glob("*.txt"))


def test_there_are_enough():
    assert len(CONVERSATIONS) >= 15


@pytest.mark.parametrize("file", CONVERSATIONS, ids=lambda file: file.stem)
def test_conversation(file, tmp_path):
    program, call, expected = file.read_text().split("---\n")
    assert converse(tmp_path, program, call.strip(), commands_in(expected)) == expected.rstrip("\n")
