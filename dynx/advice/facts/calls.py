"""Calls that Dynamo does not trace, with advice on how to avoid them in a compiled function."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynx.records.graph_break import GraphBreak

CALL_OUTSIDE = "call it outside the compiled function and pass the result in"
_JSON = re.compile(r"\bjson\.\w+\(")
_METHOD = re.compile(r"method `(?P<method>\w+)` of class `(?P<class>\w+)`")

# by a regular expression, matched against the name that torch gives, then against the source line; the first match is used
_ADVICE: Mapping[str, str] = {
    r"time\.sleep": "drop it, or wait outside the compiled function",
    r"\btime\.\w+|perf_counter|datetime|\bdate\.today": (
        "read the clock outside the compiled function, before and after the call"
    ),
    r"manual_seed|\.seed\(|set_rng_state|get_rng_state": "seed outside the compiled function, before the call",
    r"\b_?random\.|\bRandom\.": "draw it outside the compiled function and pass it in as a tensor; or use torch.rand",
    r"\buuid\d?|urandom|secrets\.": "make the id outside the compiled function, after the call",
    r"(?:^|\b_?io\.|\W)open\(?$|\bopen\(": "read or write the file outside the compiled function and pass the data in",
    r"\b_?pickle\.|torch\.(?:save|load)\b|serialization\.|savez?\(": "save and load outside the compiled function",
    r"^str$|^repr$|^format$|__format__": "format the text outside the compiled function: it needs the tensor's value",
    r"\btqdm|\btrange|ProgressBar|progress\.": "show progress in the loop that calls the compiled function",
    r"copy\.(?:deep)?copy": "copy outside the compiled function; a tensor has .clone()",
    r"\bjson\b|_json|\bre\.|\bhashlib|openssl|Decimal|urllib|requests\.|yaml|subprocess|socket": CALL_OUTSIDE,
    r"putenv|environ\b": "read or set environment variables outside the compiled function",
    r"ContextVar|contextvars?\b|_var\.(?:get|set)\b": (
        "read the context variable outside the compiled function and pass the value in"
    ),
    r"gc\.|empty_cache|synchronize|max_memory|memory_allocated|cuda\.Event": (
        "call it outside the compiled function, between calls"
    ),
    r"^(?:exec|eval|compile)$": "write the code out, or run it outside the compiled function",
    r"thread\b|Thread\(|_thread\.|concurrent|submit\(|asyncio|Queue|queue\.": (
        "start and join threads outside the compiled function"
    ),
    r"import_module|__import__": "import at the top of the file",
}


def known_advice(graph_break: GraphBreak) -> str | None:
    """Return the advice for the call that breaks the graph, by its name or source line; None if unknown."""
    callee = (graph_break.callee or "").removeprefix("builtins.").removeprefix("_io.")
    method = _METHOD.search(graph_break.explanation)
    texts = filter(None, (callee, f"{method['class']}." if method else "", graph_break.code))
    return next((advice for text in texts for call, advice in _ADVICE.items() if re.search(call, text)), None)


def called_in(graph_break: GraphBreak) -> str | None:
    """Return the call that breaks the graph as its source line writes it, such as `datetime.now()`; None if not found."""
    if found := _JSON.search(graph_break.code):  # torch names a function inside json
        return f"{found[0]})"
    method = _METHOD.search(graph_break.explanation)
    name = method["method"] if method else (graph_break.callee or "").rpartition(".")[2]
    if not name or name.startswith("__"):
        return None
    found = re.search(rf"(?:[A-Za-z_][\w.]*\.)?\b{re.escape(name)}(?=\()", graph_break.code_of_library or graph_break.code)
    return f"{found[0]}()" if found else None
