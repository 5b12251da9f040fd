"""Insert a statement, such as a setting of torch, after the imports of a file."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from difflib import SequenceMatcher

import libcst as cst

from dynx._rewrites.source import Source, code_of, parse, statement

_SETTING = re.compile(r"\w+\.(?:_dynamo\.config\.|fx\.experimental\._config\.)")


def insert(source: Source, code: str, own: Container[str] = ()) -> Iterator[str]:
    """Yield the new text of a file, with the statements in `code` inserted after `import torch` and the imports below it.

    Code above `import torch`, such as the setting of an environment variable, stays above. If one of the imports below is of
    a module of the program (`own`), which may compile functions, a second text has the statements before that import. The
    statements use the name `torch`; if the file imports torch under another name, the caller replaces it (`with_torch`).
    """
    body = list(source.module.body)
    of_any = (index for index, node in enumerate(body) if _imports_any(node, ("torch",)))
    first = next(of_any, int(source.module.get_docstring() is not None))
    end = next((index for index in range(first, len(body)) if not any(_imported(body[index]))), len(body))
    of_torch = next((index + 1 for index in range(first, end) if _imports_torch(body[index])), end)
    of_own = next((index for index in range(of_torch, end) if _imports_any(body[index], own)), end)
    for at in dict.fromkeys((end, of_own)):
        yield _inserted(source, body, at, code)


def with_torch(before: str, after: str) -> str:
    """Make `torch` work in the code that `after` adds to `before`: rename it to the file's alias, or add `import torch`."""
    source = parse(after)
    if source is None or any(map(_imports_torch, source.module.body)):
        return after
    body = list(source.module.body)
    if (alias := alias_of(source)) is not None:
        old, new = before.split("\n"), after.split("\n")
        for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind != "equal":
                new[start:end] = (re.sub(r"(?<![\w.])torch\.", f"{alias}.", line) for line in new[start:end])
        return "\n".join(new)
    start = int(source.module.get_docstring() is not None)
    while start < len(body) and _imports_any(body[start], ("__future__",)):
        start += 1
    at = next((index for index in range(start, len(body)) if _imports_any(body[index], ("torch",))), start)
    new_import = statement("import torch")
    if at < len(body) and any(_imported(body[at])):
        new_import = new_import.with_changes(leading_lines=body[at].leading_lines)
        body[at] = body[at].with_changes(leading_lines=())
    return source.module.with_changes(body=[*body[:at], new_import, *body[at:]]).code


def _inserted(source: Source, body: list[cst.SimpleStatementLine | cst.BaseCompoundStatement], at: int, code: str) -> str:
    new = [statement(part.strip()) for part in code.split(";")]
    first = at
    while at < len(body) and _is_setting(body[at]):  # a setting of an earlier fix
        at += 1
    if at == first:
        new[0] = new[0].with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    return source.module.with_changes(body=[*body[:at], *new, *body[at:]]).code


def _is_setting(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and _SETTING.match(code_of(node.body[0])) is not None


def alias_of(source: Source) -> str | None:
    """Return the alias under which a file imports torch, `th` for `import torch as th`; None if it has none."""
    imports = (part for node in source.module.body for part in _parts(node) if isinstance(part, cst.Import))
    names = (name.evaluated_alias for part in imports for name in part.names if name.evaluated_name == "torch")
    return next(filter(None, names), None)


def names_of(source: Source, function: str) -> list[str]:
    """Return the names under which a file imports a function of torch: `compile` for `from torch import compile`."""
    parts = [part for node in source.module.body for part in _parts(node) if isinstance(part, cst.ImportFrom)]
    names = [each for part in parts if part.module is not None and code_of(part.module) == "torch" for each in _listed(part)]
    return [each.evaluated_alias or each.evaluated_name for each in names if each.evaluated_name == function]


def _listed(part: cst.ImportFrom) -> Sequence[cst.ImportAlias]:
    return () if isinstance(part.names, cst.ImportStar) else part.names


def _imports_torch(node: cst.CSTNode) -> bool:
    names = [name for part in _parts(node) if isinstance(part, cst.Import) for name in part.names]
    return any(name.evaluated_name.partition(".")[0] == "torch" and name.asname is None for name in names)


def _imports_any(node: cst.CSTNode, modules: Container[str]) -> bool:
    """Return whether a statement imports one of `modules`, or is a relative import."""
    return any(name == "." or name in modules for name in _imported(node))


def _imported(node: cst.CSTNode) -> Iterator[str]:
    """Yield the top-level name of each module that a statement imports, "." for a relative import."""
    for part in _parts(node):
        if isinstance(part, cst.Import):
            yield from (name.evaluated_name.partition(".")[0] for name in part.names)
        elif isinstance(part, cst.ImportFrom):
            yield "." if part.relative or part.module is None else code_of(part.module).partition(".")[0]


def _parts(node: cst.CSTNode) -> Sequence[cst.BaseSmallStatement]:
    return node.body if isinstance(node, cst.SimpleStatementLine) else ()
