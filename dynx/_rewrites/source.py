"""Parse a file with libcst, find nodes by line, and replace them; formatting and comments are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from dynx.records import Location
from dynx.records.fix import Fix


class Source:
    """The syntax tree of a file, with the position and the parent of each node."""

    def __init__(self, text: str) -> None:
        wrapper = MetadataWrapper(cst.parse_module(text))
        self.module = wrapper.module
        self._lines = text.split("\n")
        self.quote = "'" if text.count("'") > text.count('"') else '"'  # around most strings of the file
        self._positions: Any = wrapper.resolve(PositionProvider)
        self._parents: Any = wrapper.resolve(ParentNodeProvider)

    def range_of(self, node: cst.CSTNode) -> CodeRange:
        """Return the first and the last line and column of a node."""
        found: CodeRange = self._positions[node]
        return found

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the node that directly contains a node; None for the module."""
        return self._parents.get(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield all nodes that contain a node, the innermost first."""
        while (found := self.parent(node)) is not None:
            yield found
            node = found

    def nodes(self, kind: type[Any]) -> Iterator[Any]:
        """Yield all nodes of the class `kind`, such as `cst.Call`."""
        return (node for node in self._positions if isinstance(node, kind))

    def at_line(self, kind: type[Any], line: int) -> Iterator[Any]:
        """Yield the nodes of the class `kind` that extend over a line, the smallest first."""
        yield from sorted((node for node in self.nodes(kind) if self._covers(node, line)), key=self._extent)

    def if_at(self, line: int) -> cst.If | None:
        """Return the innermost `if` or `elif` whose condition extends over a line, or None."""
        return next((found for found in self.at_line(cst.If, line) if self._covers(found.test, line)), None)

    def _covers(self, node: cst.CSTNode, line: int) -> bool:
        return self.range_of(node).start.line <= line <= self.range_of(node).end.line

    def _extent(self, node: cst.CSTNode) -> tuple[int, int]:
        start, end = self.range_of(node).start, self.range_of(node).end
        return end.line - start.line, end.column - start.column

    def at_columns(self, kind: type[Any], location: Location) -> Any | None:
        """Return the smallest node of the class `kind` that begins and ends at the columns of a location, or None.

        If the end column of the location is unknown, only the beginning is compared.
        """
        if location.column is None or location.line > len(self._lines):
            return None
        line = self._lines[location.line - 1].encode()

        def characters(column: int) -> int:
            return len(line[:column].decode(errors="ignore"))

        for node in self.at_line(kind, location.line):
            start, end = self.range_of(node).start, self.range_of(node).end
            is_end = location.end_column is None or (end.line, end.column) == (location.line, characters(location.end_column))
            if (start.line, start.column) == (location.line, characters(location.column)) and is_end:
                return node
        return None

    def statement_of(self, node: cst.CSTNode) -> cst.SimpleStatementLine | cst.BaseCompoundStatement | None:
        """Return the innermost statement that contains a node, or None."""
        for each in (node, *self.parents(node)):
            if isinstance(each, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
                return each
        return None

    def above(self, statement: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """Return the statements above a statement, in the same block."""
        body = getattr(self.parent(statement), "body", ())
        return body[: body.index(statement)] if statement in body else ()

    def function_at(self, line: int) -> cst.FunctionDef | None:
        """Return the function whose definition, or first decorator, is at a line, or None."""
        for function in self.nodes(cst.FunctionDef):
            if self.range_of(function).start.line <= line <= self.range_of(function.name).start.line:
                return function
        return None

    def replaced(self, old: cst.CSTNode, new: cst.CSTNode | cst.FlattenSentinel[Any]) -> str:
        """Return the text of the file with one node replaced."""
        return self.replaced_all({old: new})

    def inserted(self, node: Any, lines: Sequence[str], changes: Mapping[cst.CSTNode, cst.CSTNode]) -> str:
        """Return the text of the file with `lines` inserted before the statement `node`, whose nodes in `changes` are replaced.

        A comment and blank lines above the statement stay above the inserted lines.
        """
        changed = node.visit(_Replace({id(old): new for old, new in changes.items()}))
        first, *more = map(cst.parse_statement, lines)
        first = first.with_changes(leading_lines=node.leading_lines)
        return self.replaced(node, cst.FlattenSentinel([first, *more, changed.with_changes(leading_lines=())]))

    def free_name(self, name: str, near: cst.CSTNode | None = None) -> str:
        """Return `name`, with a number if the function around `near` (the whole file if there is none) already uses it."""
        function = next((each for each in self.parents(near) if isinstance(each, cst.FunctionDef)), None) if near else None
        inside = function if function is not None else self.module
        used = {node.value for node in self.nodes(cst.Name) if inside in self.parents(node)}
        return next(each for each in (name, *(f"{name}_{number}" for number in range(2, 999))) if each not in used)

    def replaced_all(self, changes: Mapping[Any, Any]) -> str:
        """Return the text of the file with several nodes replaced, none of which contains another."""
        return self.module.visit(_Replace({id(old): new for old, new in changes.items()})).code


class _Replace(cst.CSTTransformer):
    def __init__(self, nodes: dict[int, Any]) -> None:
        super().__init__()
        self._nodes = nodes

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return self._nodes.get(id(original_node), updated_node)


@lru_cache(maxsize=8)
def parse(text: str) -> Source | None:
    """Parse the text of a file; return None if libcst cannot parse it."""
    try:
        return Source(text)
    except cst.ParserSyntaxError:
        return None


def calls_at(source: Source, fix: Fix) -> list[cst.Call]:
    """Return the call at the columns of `fix.called_from`, else calls of the fix's function at that line, else all there."""
    if fix.called_from is None or fix.location is None:
        return []
    if (exact := source.at_columns(cst.Call, fix.called_from)) is not None:
        return [exact]
    calls = list(reversed(list(source.at_line(cst.Call, fix.called_from.line))))
    name = fix.location.function.rpartition(".")[2]
    of_that_name = [call for call in calls if code_of(call.func).rpartition(".")[2] == name]
    return of_that_name or calls


def statement(code: str) -> cst.SimpleStatementLine:
    """Return the parsed node of one simple statement."""
    parsed = cst.parse_statement(code)
    assert isinstance(parsed, cst.SimpleStatementLine)
    return parsed


def code_of(node: cst.CSTNode) -> str:
    """Return the source text of a node."""
    return cst.Module([]).code_for_node(node)
