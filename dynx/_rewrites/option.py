"""Add an argument such as `dynamic=True` to calls of torch.compile, or replace torch.compile by dynx.compile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import libcst as cst

from dynx._rewrites.source import Source, code_of, parse
from dynx._rewrites.statement import alias_of, insert, names_of

_WORD = re.compile(r"\w+")


def add(source: Source, code: str, function: str) -> Iterator[str]:
    """Yield new texts of a file: the change `code` is made to one call of torch.compile at a time, then to all calls.

    `code` is an argument such as `dynamic=True`, or "dynx.compile", which replaces torch.compile. If there are calls that name
    `function` or its class, only these are changed; else calls inside of it, or as its decorator, if there are any.
    """
    compiles = ("torch.compile", f"{alias_of(source)}.compile", *names_of(source, "compile"))
    sites = _sites(source, compiles)
    names = set(function.split(".")) - {"forward"}
    named = [site for site in sites if names & set(_WORD.findall(code_of(site)))]
    inside = [site for site in sites if _owner(source, site) in function.split(".")]
    changed = {site: new for site in named or inside or sites if (new := _changed(site, code, compiles)) is not None}
    texts = [source.replaced(site, new) for site, new in changed.items()]
    if len(changed) > 1:
        texts.append(source.replaced_all(changed))
    for text in texts:
        yield _with_import(text) if code == "dynx.compile" else text


def _with_import(text: str) -> str:
    parsed = parse(text)
    return next(insert(parsed, "import dynx"), text) if parsed is not None else text


def _sites(source: Source, compiles: tuple[str, ...]) -> list[cst.CSTNode]:
    """Return the calls of torch.compile under any of the names `compiles`, and its uses as a decorator without a call."""
    calls: list[cst.CSTNode] = [call for call in source.nodes(cst.Call) if _is_compile(call, compiles)]
    bare = [each for each in source.nodes(cst.Decorator) if code_of(each.decorator) in compiles]
    return calls + bare


def _is_compile(call: cst.Call, compiles: tuple[str, ...]) -> bool:
    name = code_of(call.func)
    if name in compiles:
        return True
    if name in ("partial", "functools.partial") and call.args:
        return code_of(call.args[0].value) in compiles
    # `model.compile(backend=...)`, not `re.compile(pattern)`
    is_method = isinstance(call.func, cst.Attribute) and call.func.attr.value == "compile"
    return is_method and all(arg.keyword is not None or arg.star == "**" for arg in call.args)


def _changed(site: Any, code: str, compiles: tuple[str, ...]) -> cst.CSTNode | None:
    """Return a call or decorator of torch.compile with the change `code` (an argument or dynx.compile); None if unchanged."""
    if code == "dynx.compile":
        return _with_dynx(site, compiles)
    name, _, value = code.partition("=")
    no_space = cst.SimpleWhitespace("")
    argument = cst.Arg(cst.parse_expression(value), cst.Name(name), equal=cst.AssignEqual(no_space, no_space))
    if isinstance(site, cst.Decorator):
        return site.with_changes(decorator=cst.Call(site.decorator, [argument]))
    given = next((arg for arg in site.args if arg.keyword is not None and arg.keyword.value == name), None)
    if given is not None:
        new = given.with_changes(value=argument.value)
        changed = site.with_changes(args=[new if arg is given else arg for arg in site.args])
        return None if code_of(given.value) == value else changed
    if not site.args:
        return site.with_changes(args=[argument])
    *others, last = site.args
    comma = others[-1].comma if others else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    argument = argument.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    last = last.with_changes(comma=comma, whitespace_after_arg=no_space)
    return site.with_changes(args=[*others, last, argument])


def _with_dynx(site: Any, compiles: tuple[str, ...]) -> cst.CSTNode | None:
    name = cst.Attribute(cst.Name("dynx"), cst.Name("compile"))
    if isinstance(site, cst.Decorator):
        return site.with_changes(decorator=name)
    return site.with_changes(func=name) if code_of(site.func) in compiles else None


def _owner(source: Source, site: cst.CSTNode) -> str | None:
    """Return the name of the function or class that has a call of torch.compile in its body, or as its decorator."""
    owners = (each.name.value for each in source.parents(site) if isinstance(each, (cst.FunctionDef, cst.ClassDef)))
    return next(owners, None)
