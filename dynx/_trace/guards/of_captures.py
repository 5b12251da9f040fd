"""Rename guarded values of captured backward passes, whose code torch generates, to the names in the code of hooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from types import CodeType

from dynx._reading.user_location import owner_of_file
from dynx.records import Reason

_GRAPH = "<eval_with_key>"  # begins the file name of the code of a `torch.fx.GraphModule`
_HOOK = re.compile(r"hooks\[\d+\]")
_KEYWORD = re.compile(r"hooks\[\d+\]\.keywords\['(\w+)'\]")  # of a `functools.partial`
_METHOD = re.compile(r"hooks\[\d+\]\.__self__\b")
_CALLED = {"backward": "ctx", "vjp": "ctx", "__call__": "self", "": "hook"}  # what the code of a hook calls the hook itself


def is_captured(compile_id: str, code: CodeType) -> bool:
    """Return whether code that is compiled is torch's, for a captured backward pass; else it may be that of a hook."""
    return compile_id.startswith("!") and owner_of_file(code.co_filename).kind == "torch"


def in_words_of_hooks(of_torch: Sequence[Reason], named: Sequence[Reason], code: CodeType) -> list[Reason]:
    """Return `named` with the names of hooks, if the code is that of a captured backward pass; `of_torch` has torch's names.

    `holder` is "captured" for arguments and intermediate values of the pass, which have no name in the program, and
    "code of torch" for those of functions that it calls, such as the one that calls a hook.
    """
    if not of_torch or not is_captured(of_torch[0].against or "", code):
        return list(named)
    return [_named(*pair, code) for pair in zip(of_torch, named, strict=True)]


def _named(of_torch: Reason, named: Reason, code: CodeType) -> Reason:
    if _HOOK.match(of_torch.source) is None:
        is_local = re.split(r"\W", of_torch.source, maxsplit=1)[0] in code.co_varnames
        is_graph = code.co_filename.startswith(_GRAPH)
        return replace(named, holder="captured" if is_graph else "code of torch") if is_local else named
    function = named.location.function.rpartition(".")[2] if named.location is not None else ""
    source = _METHOD.sub("self", _KEYWORD.sub(r"\1", named.source))
    return replace(named, source=_HOOK.sub(_CALLED.get(function, function), source))
