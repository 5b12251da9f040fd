"""Read graph breaks from the exceptions that torch raises for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dynx._torch.tracing.stack import RawFrame, of_summaries, tracing_stack

# beginnings of the reason for a graph break that has no resume function
_NOT_RESUMED = ("Failed to handle graph break gracefully", "Encountered graph break that we cannot resume from")
_CALLEE = re.compile(
    r"builtin operator `(?P<operator>[^`]+)`|[Pp]ython builtin `(?P<builtin>[^`]+?)\.?`|the builtin `(?P<c>[^`]+?)\.?`"
    r"|graph breaks on `(?P<time>[^`]+?)\(\)`|function `<function (?P<function>\S+) at|skipped function `?(?P<skipped>[\w.]+)"
    r"|Operator `aten\._?(?P<dynamic>\w+?)\d?\.\w+`'s output shape"
    r"|module: (?P<module>\S+), qualname: (?P<qualname>[\w.<>]+)"
)
_PAGE = re.compile(r"about this graph break, please visit: (https://\S+)")
# used only if `_CALLEE` finds nothing: this name lacks the module
_MARKED = re.compile(r"intentionally marked that the function `(?P<name>[\w.]+)`")


@dataclass(frozen=True, slots=True)
class RawBreak:
    """One graph break: the parts of torch's message, the user's stack, and whether a resume function continues after it."""

    kind: str  # torch's gb_type, a stable name of the cause
    headline: str
    explanation: str
    hints: tuple[str, ...]
    context: str  # torch's "Developer debug context"
    callee: str | None
    stack: tuple[RawFrame, ...]  # outermost first
    resumable: bool
    page: str  # torch's page on this kind of graph break; empty if it has none
    compiled_autograd: bool  # `torch._dynamo.config.compiled_autograd`
    captures_backward: bool  # compiled autograd is enabled, by the setting or otherwise


def break_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
    """Return reason and exception from the arguments of `InstructionTranslatorBase.log_graph_break`."""
    arguments = dict(zip(("self", "code_options", "reason", "exc"), args, strict=False)) | kwargs
    return arguments["reason"], arguments["exc"]


def read_break(reason: str, error: Any) -> RawBreak:
    """Read a graph break from the arguments of `InstructionTranslatorBase.log_graph_break`.

    Torch: `Unsupported.gb_type`, `.msg`, `.real_stack`, `.skip_frame`; 2.11 does not set `skip_frame` on every path, so
    the text of `reason` is checked too. The parts of the message are read from its text, which is alike in all versions.
    """
    from torch._dynamo import compiled_autograd, config

    message = str(getattr(error, "msg", error))
    headline = message.strip().splitlines()[0] if message.strip() else type(error).__name__
    stack = of_summaries(getattr(error, "real_stack", None)) or tracing_stack()
    context = _part(message, "Developer debug context")
    return RawBreak(
        kind=str(getattr(error, "gb_type", None) or headline),
        headline=headline,
        explanation=_part(message, "Explanation"),
        hints=tuple(match.strip() for match in re.findall(r"^  Hint: (.*(?:\n(?!  \w|\s*$).*)*)", message, re.M)),
        context=context,
        callee=_callee(f"{message}\n{context}"),
        stack=stack,
        resumable=not (getattr(error, "skip_frame", False) or reason.startswith(_NOT_RESUMED)),
        page=match[1] if (match := _PAGE.search(message)) else "",
        compiled_autograd=bool(config.compiled_autograd),
        captures_backward=bool(compiled_autograd.compiled_autograd_enabled),
    )


def _part(message: str, title: str) -> str:
    match = re.search(rf"^  {title}: (.*(?:\n(?!  \w+.*:|\s*$).*)*)", message, re.M)
    return match.group(1).strip() if match else ""


def _callee(text: str) -> str | None:
    match = _CALLEE.search(text)
    if match is None:
        marked = _MARKED.search(text)
        return marked["name"] if marked else None
    if match["qualname"]:
        return f"{match['module']}.{match['qualname']}"
    return next(group for group in match.groups() if group)
