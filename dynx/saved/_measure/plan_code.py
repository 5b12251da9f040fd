"""Write the rules of a plan: by line or module if all tensors of this line or module get the same codec, else by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from dynx._reading.user_location import call_site
from dynx.records.saved import SavedTensor
from dynx.saved._codec import Codec
from dynx.saved._rules import Rule, is_at, rule

Where = dict[str, str]  # options of a rule


class Written(NamedTuple):
    """A rule, and the source code that creates it, for the user to paste."""

    rule: Rule
    code: str


def rules_of(
    tensors: Sequence[SavedTensor], chosen: Mapping[str, Codec], taken_by: Mapping[Codec, Collection[str]]
) -> list[Written]:
    """Return rules that pack each tensor with the codec chosen for its name, and pack no other tensor.

    Args:
        tensors: All saved tensors; tensors with the same name have the same codec.
        chosen: The codec for each name; tensors with other names are not packed.
        taken_by: For each codec, the names of the tried tensors that it packs into fewer bytes.
    """
    found: list[tuple[Codec, Where]] = []
    by_name: dict[Codec, list[str]] = {}
    covered: set[str] = set()
    activations = [tensor for tensor in tensors if tensor.is_activation]
    for tensor in activations:
        codec = chosen.get(tensor.name)
        if codec is None or tensor.name in covered:
            continue
        for where in _options(tensor):
            names = {other.name for other in activations if _matches(where, other) and other.name in taken_by[codec]}
            if all(chosen.get(name) is codec for name in names):
                found.append((codec, where))
                covered |= names
                break
        else:
            covered.add(tensor.name)
            by_name.setdefault(codec, []).append(tensor.name)
    found += [(codec, {"name": f"^({'|'.join(map(re.escape, names))})$"}) for codec, names in by_name.items()]
    return [_written(codec, where) for codec, where in found]


def _options(tensor: SavedTensor) -> Iterator[Where]:
    """Yield options of `saved.rule` that select a tensor: its line, its module, or both; the most general first.

    The line is omitted if it is only the line of the compiled call, as for tensors of a compiled `nn.Sequential`.
    """
    location = tensor.location
    line = {"line": f"{location.file}:{location.line}"} if location is not None and location != call_site() else {}
    module = {"module": f"^{re.escape(tensor.module)}$".replace(r"\ ", " ")} if tensor.module is not None else {}
    yield from (where for where in (line, module, line | module) if where)


def _matches(where: Where, tensor: SavedTensor) -> bool:
    is_on_line = "line" not in where or is_at(tensor.location, where["line"])
    return is_on_line and ("module" not in where or re.search(where["module"], tensor.module or "") is not None)


def _written(codec: Codec, where: Where) -> Written:
    shown = dict(where)
    if "line" in shown:  # the last folder and the file name suffice
        shown["line"] = "/".join(shown["line"].split("/")[-2:])
    options = [f'{name}="{value}"' if name == "line" else f'{name}=r"{value}"' for name, value in shown.items()]
    return Written(rule(codec, **where), f"saved.rule({', '.join([codec.code or codec.name, *options])})")  # type: ignore[arg-type]
