"""`Plan`: the changes with which a program is run, written by dynx and read by the process that runs the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from dynx._rewrites.source_file import read
from dynx.records import Location
from dynx.records.codec import from_data, to_data
from dynx.records.fix import Fix


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes with which a program is run: fixes that change no file, and new texts of source files."""

    fixes: tuple[Fix, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)  # text by absolute path
    values: tuple[str, ...] = ()  # global variables of the program that are saved when it ends

    def write(self, path: Path) -> None:
        """Write the plan as JSON."""
        data = {"fixes": [to_data(fix) for fix in self.fixes], "sources": dict(self.sources), "values": list(self.values)}
        path.write_text(json.dumps(data))

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Return the plan in a JSON file that `write` has written."""
        data = json.loads(path.read_text())
        return cls(tuple(from_data(Fix, fix) for fix in data["fixes"]), data["sources"], tuple(data["values"]))

    def changed_since(self, earlier: Plan) -> tuple[Location, ...]:
        """Return file and first line of each source change since the plan `earlier`, with the line numbers of that plan."""
        changed = []
        for file, text in self.sources.items():
            before = earlier.sources[file] if file in earlier.sources else read(file)
            matcher = SequenceMatcher(None, before.split("\n"), text.split("\n"), autojunk=False)
            changed += [Location(file, start + 1, "") for kind, start, *_ in matcher.get_opcodes() if kind != "equal"]
        return tuple(changed)


def values_file(plan: Path) -> Path:
    """Return the path of the file, next to the plan's file, in which the global variables named by the plan are saved."""
    return plan.with_suffix(".values")
