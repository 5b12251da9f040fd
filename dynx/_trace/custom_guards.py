"""Guards that users add by `ctx.guard_on`, by name, so that a recompile can tell what they give now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynx._torch.tracing.render import show_value

_questions: dict[str, Callable[[], Any]] = {}


def remember(name: str, question: Callable[[], Any]) -> None:
    """Keep the function of a guard; a newer one of the same name takes its place."""
    _questions[name] = question


def answer(name: str) -> str | None:
    """Render what the guard's function gives now; None where it cannot tell."""
    question = _questions.get(name)
    if question is None:
        return None
    try:
        return show_value(question())
    except Exception:  # noqa: BLE001 - the user's function; torch has called it just before
        return None
