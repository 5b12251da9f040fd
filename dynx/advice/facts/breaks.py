"""Describe a graph break for the title and advice of a finding, such as the call that breaks the graph."""

from __future__ import annotations

import re

from dynx.advice.facts.calls import called_in
from dynx.records.finding import Alternative
from dynx.records.fix import rewrite
from dynx.records.graph_break import GraphBreak

UNTRACED = (  # how torch's `gb_type` begins for calls of functions without Python code
    "Failed to trace builtin operator",
    "Call to a time function",
    "Unsupported method call",
    "Unsupported function call",
    "call to a callable object with no traceable __call__",
)
_PRINTS = re.compile(
    r"^(?:print|_?warnings\.warn\w*|logging(?:\.\w+)*|loguru(?:\.\w+)*|builtins\.print|sys\.std(?:out|err)\.\w+)$"
)
_LOG_CALL = re.compile(r"(?P<name>[\w.]+\.(?:debug|info|warning\w*|warn|error|exception|critical|fatal|log))\(")
_REACTS = re.compile(r":\s*(?:raise\b|assert\b|print\(|warnings?\.|log\w*\.|return\s*$|break\b|continue\b)")


def is_print(graph_break: GraphBreak) -> bool:
    """Return whether a call of `print`, `warnings.warn` or a logger breaks the graph."""
    if graph_break.kind.startswith(UNTRACED) and re.search(r"\bstd(?:out|err)\.(?:write|flush)\(", graph_break.code):
        return True
    return bool(_PRINTS.match(graph_break.callee or "")) or graph_break.kind.startswith(("logging.Logger", "warnings.warn"))


def code_of(graph_break: GraphBreak) -> str:
    """Return `: ` and the source line of a graph break, to be appended to a title; empty if the line is unknown."""
    return f": {graph_break.code}" if graph_break.code else ""


def name_of(graph_break: GraphBreak) -> str:
    """Return the call that breaks the graph, as written in the source line: `logger.info()`."""
    if graph_break.kind.startswith("logging.Logger") or graph_break.callee == "logging":
        call = _LOG_CALL.search(graph_break.code_of_library or graph_break.code)
        return f"{call['name']}()" if call else "a log call"
    written = called_in(graph_break)
    return written or (f"{graph_break.callee}()" if graph_break.callee else "a function that this line calls")


def branch_advice(code: str) -> Alternative:
    """Return the alternative for a source line (`code`) that branches on the value of a tensor."""
    if _REACTS.search(code):  # the branch computes nothing that torch.where could select
        return Alternative("return the value, and check it outside the compiled function, after the call")
    return Alternative("use torch.where or torch.cond, or branch outside the compiled function", rewrite("where").name)


def unbuildable(graph_break: GraphBreak) -> str:
    """Return the kind of value that Dynamo cannot rebuild after a graph break, such as `DictValuesIterator`."""
    match = re.search(r"variable (\w+)", graph_break.explanation)
    return "a generator" if graph_break.kind.startswith("Generator") or match is None else match[1]
