"""Rule DX911: compiled code still uses a value that has changed, because no guard watches it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynx.advice.facts.effects import compiled_again, named, stale_findings
from dynx.advice.rule import RunRule
from dynx.records.finding import Alternative, Finding
from dynx.records.run_records import RunRecords
from dynx.records.unguarded import ReadKind, StaleValue

_VARIABLE = re.compile(r"os\.environ\[(?P<name>.+)\]")
_KINDS: tuple[ReadKind, ...] = (
    *("attribute", "identity", "key", "absent key", "import", "builtin"),
    *("guard", "isinstance", "order", "call", "constant result"),
)


def _find(run: RunRecords) -> Iterator[Finding]:
    yield from stale_findings(run, RULE.id, _KINDS, _title, _alternatives)


def _title(stale: StaleValue) -> str:
    text = _unmarked(named(stale))
    if stale.kind == "constant result":
        return f"compiled code still uses {text} {_unmarked(stale.before)}, now {_unmarked(stale.now)}"
    if stale.kind == "key":
        return f"compiled code still looks up {text} as {stale.before}: it is {stale.now} now"
    return f"compiled code still uses {text} = {_unmarked(stale.before)}: it is {_unmarked(stale.now)} now"


def _unmarked(text: str) -> str:
    """Return the text without the prefix of bytes, by which `os.environ` keeps names and values."""
    return re.sub(r"(?<!['\"\w])b(?=['\"])", "", text)


def _alternatives(stale: StaleValue) -> Iterator[Alternative]:
    variable = _VARIABLE.fullmatch(_unmarked(named(stale)))
    if variable is not None and stale.before != "absent":
        yield Alternative(f"read it as os.environ[{variable['name']}] in the compiled function itself, which torch guards")
    elif variable is not None:
        yield Alternative(f"read it as os.environ.get({variable['name']}), which torch guards")
    elif stale.kind == "import":  # torch keeps the first module of this name, even if it compiles again
        yield Alternative(
            f"import it outside of the function: torch keeps {named(stale).removeprefix('import ')} as it was first"
        )
        return
    elif stale.kind == "key":
        yield Alternative(f"look up a constant of it, such as {named(stale)}.value of an enum, which torch guards")
    else:
        yield Alternative("pass it as an argument: torch guards numbers, strings and bools among the arguments")
    yield compiled_again(stale)


RULE = RunRule(id="DX911", title="compiled code uses a value that has changed", find=_find)
