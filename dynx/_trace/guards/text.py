"""Parser of torch's messages about guards: kind, source, expected and actual value.

Works on text only. `tests/trace/test_guard_text.py` checks the patterns against recorded messages of every supported torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dynx.records.recompile import GuardKind


class GuardLine(NamedTuple):
    """The line that requested a guard, as torch's message names it."""

    file: str  # torch may shorten the path: only its end is certain
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class ParsedGuard:
    """The parts of torch's text of one guard; None for parts that the text does not contain."""

    kind: GuardKind
    source: str
    expected: str | None = None
    got: str | None = None
    line: GuardLine | None = None
    text: str = ""
    by_backend: bool = False  # AOTAutograd or inductor added it, not Dynamo


@dataclass(frozen=True, slots=True)
class FailedEntry:
    """A cache entry that did not match a call: its compile id (`against`), and its first failed guard."""

    against: str
    guard: ParsedGuard


_ENTRY = re.compile(r"^(?P<id>(?:!\d+/)?\d+/\d+(?:_\d+)?): ", re.M)
_STACK_FRAME = re.compile(r'^\s*File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)$', re.M)
_COMMENT = re.compile(r"\s{2,}# .*  # (?P<file>[^#\n]+?):(?P<line>\d+) in (?P<function>[^\s(]+)", re.S)
_IN_TORCH = re.compile(r"\s{2,}# \((?P<file>[^#\n()]+):\d+ in \w+\)$")  # a guard that no line of the program requested
_SIZE = r"(?P<source>\S+?)\.(?P<what>(?:size|stride)\(\)\[\d+\]|storage_offset\(\))"


def parse_entry(text: str) -> FailedEntry:
    """Parse one recompile reason of torch: `0/1: tensor 'x' size mismatch at index 0. expected 3, actual 5`."""
    match = _ENTRY.match(text)
    against = match["id"] if match else ""
    return FailedEntry(against, parse_guard(text[match.end() :] if match else text))


def parse_error(text: str) -> tuple[FailedEntry, ...]:
    """Parse the recompile reasons in the message of `RecompileError`, which torch raises under `error_on_recompile`."""
    lines = (line.strip().removeprefix("- ") for line in text.splitlines())
    return tuple(parse_entry(line) for line in lines if _ENTRY.match(line))


def parse_guard(text: str) -> ParsedGuard:
    """Parse torch's text of one guard; the kind is "other" if no pattern matches.

    The line that requested the guard is read from the user stack in the text (torch 2.13 and later), or else from the comment.
    """
    body, _, stack = text.partition("\nUser stack trace:\n")
    frames = [_guard_line(match) for match in _STACK_FRAME.finditer(stack)]
    comment = _COMMENT.search(body)
    code = (body[: comment.start()] if comment else body).strip()
    in_torch = _IN_TORCH.search(code)
    by_backend = in_torch is not None and in_torch["file"].startswith(("_functorch/", "_inductor/"))
    code = code[: in_torch.start()] if in_torch is not None else code
    line = frames[-1] if frames else (_guard_line(comment) if comment else None)
    for pattern, read in _PATTERNS:
        if match := pattern.match(code):
            kind, source, expected, got = read(match)
            return ParsedGuard(kind, source, expected, got, line, code, by_backend)
    return ParsedGuard("other", code, None, None, line, code, by_backend)


def _guard_line(match: re.Match[str]) -> GuardLine:
    return GuardLine(match["file"], int(match["line"]), match["function"])


Fields = tuple[GuardKind, str, str | None, str | None]  # kind, source, expected, got
Read = Callable[[re.Match[str]], Fields]

_HINT = re.compile(r"\. Guard failed on a parameter.*", re.S)  # torch's hint follows the last value
_TENSOR_KINDS: tuple[GuardKind, ...] = ("size", "stride", "rank", "dtype", "device", "requires_grad")


def _tensor(match: re.Match[str]) -> Fields:
    kind: GuardKind = next((kind for kind in _TENSOR_KINDS if kind == match["what"]), "tensor")
    source = match["source"]
    if match["dim"] is not None:
        source = f"{source}.{kind}()[{match['dim']}]"
    expected, got = (_HINT.sub("", value) if value is not None else None for value in (match["expected"], match["got"]))
    assert expected is not None
    if kind == "requires_grad":  # torch prints "requires_grad=0" and no second value
        required = expected.endswith("1")
        return kind, source, str(required), str(not required)
    return kind, source, expected, got


def _index(text: str | None) -> str | None:
    """Return a device index as text; torch prints the index as a raw byte, so that index 1 is the character U+0001."""
    return None if text is None else f"index {text if text.isdigit() else ord(text)}"


def _whole_tensor(match: re.Match[str]) -> Fields:
    """Parse a TENSOR_MATCH guard, `check_tensor(...)`, which lists all compared properties; write a dynamic size as "any"."""
    parts = [match["dtype"], match["size"].replace("None", "any"), f"stride {match['stride'].replace('None', 'any')}"]
    parts += [f"device {match['device']}"] if match["device"] != "None" else []
    parts += ["requires_grad"] if match["grad"] == "True" else []
    return "tensor", match["source"], ", ".join(parts), None


def _compare(match: re.Match[str]) -> Fields:
    source, value = match["source"], match["value"]
    if "___as_tensor(" in value:  # torch 2.11: a float that became a tensor, without its value
        return "value", source, None, None
    return "value", source, value if match["op"] == "==" else f"not {value}", None


_BUILTIN_FUNCTION = ("<built-in function ", "<built-in method ")  # torch 2.11 prints the repr of the object, not its type
_FUNCTION_TYPES = ("<class 'code'>", "<class 'function'>", "<class 'method'>", "<class 'builtin_function_or_method'>")


KEY_OF_DICT = r"(?P<key>list\(dict\.keys\(.*\)\)\[\d+\])"  # as which an argument, such as an enum member, was found


def _identity(match: re.Match[str]) -> Fields:
    source, kind = match["source"], match.groupdict().get("type") or ""
    if source.endswith(".__code__") or kind in _FUNCTION_TYPES or kind.startswith(_BUILTIN_FUNCTION):
        return "function", source.removesuffix(".__code__"), None, None
    return "object", source, kind or None, None


_PRESENCE = (("absent", "present"), ("present", "absent"))  # expected and got, by whether presence is required

_COPY_ON_WRITE = (("not copy-on-write", "copy-on-write"), ("copy-on-write", "not copy-on-write"))
_CURRENT_STREAM = (("not the current stream", "the current stream"), ("the current stream", "not the current stream"))


def _contains(match: re.Match[str]) -> Fields:
    source, key = match["source"], match["key"]
    if source.endswith(".__dict__"):  # the presence of an attribute on an object
        return "attribute", f"{source.removesuffix('.__dict__')}.{key.strip(chr(39))}", *_PRESENCE[not match["not"]]
    return "keys", source, *((f"no {key}", key) if match["not"] else (key, f"no {key}"))


_DUCK_SIZING = re.compile(r"\s+# duck sizing .*", re.S)  # torch's hint follows the condition


def _shape(match: re.Match[str]) -> Fields:
    condition = _DUCK_SIZING.sub("", match[0])
    inner = re.search(_SIZE, condition)
    source = f"{inner['source']}.{inner['what']}" if inner else condition
    return "shape", source.lstrip("(-"), condition, None


_NAME = re.compile(r"(?<![\w.'\"\]])(?!(?:and|or|not)\b)[A-Za-z_][\w.\[\]'\"]*+(?!\()")  # not a function


_AS_TENSOR = re.compile(r"___as_tensor\((.*?)\)\.item\(\)")  # torch 2.11: a float


def _bounds(match: re.Match[str]) -> Fields:
    """Parse a condition on a symbolic number, such as `2 <= n and n <= 9` or `(n % 2) == 0`."""
    condition = _AS_TENSOR.sub(r"\1", match[0])
    name = _NAME.search(condition)
    return "shape", name[0] if name else condition, condition, None


def _iterator(match: re.Match[str]) -> Fields:
    """Parse the guard on an iterator that is an argument: its length, or its start, stop and step."""
    source, kind, value = match["source"], match["kind"], match["value"]
    if kind.endswith("_len"):
        return "length", source, value, None
    if kind == "normalize_count_iter":
        return "value", source, f"count{value}", None
    return "value", source, f"iterator of range{value.removesuffix(', 1)') + ')' if value.endswith(', 1)') else value}", None


def _functorch(match: re.Match[str]) -> Fields:
    """Parse the guarded stack of torch.func transforms; `[('Vmap', 1, 'error')]` becomes the text `Vmap 1 error`."""
    levels = re.findall(r"\(([^()]*)\)", match["value"])
    texts = [" ".join(part.strip(" '") for part in level.split(",")) for level in levels]
    return "global_state", "functorch_stack", f"functorch_stack {', '.join(texts) or 'empty'}", None


def _named_groups(kind: GuardKind) -> Read:
    """Return a function that reads a guard of this kind from the groups `source`, `expected` and `got` of a match."""

    def read(match: re.Match[str]) -> Fields:
        groups = match.groupdict()
        return kind, groups["source"], groups.get("expected"), groups.get("got")

    return read


# the first matching pattern is used; sources keep torch's spelling, with `L['x']` shortened to `x`
_READERS: tuple[tuple[str, GuardKind | Read], ...] = (
    (
        r"(?s)tensor '(?P<source>.*?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<dim>\d+))?\."
        r" expected (?P<expected>.*?)(?:, actual (?P<got>.*))?$",
        _tensor,
    ),
    (
        r"(?s)tensor '(?P<source>.*?)' Tensor device index mismatch\. Expected device index to be (?P<expected>\d+|.)?,"
        r" actual ?(?P<got>\d+|.)?$",
        lambda m: ("device", m["source"], _index(m["expected"]), _index(m["got"])),
    ),
    (r"(?s)expected type of '(?P<source>.*?)' to be (?P<expected>.*?)(?:, '|,) but found (?P<got>.*)$", "type"),
    (
        r"(?:CodeGuardAccessor: )?Not a function on (?P<source>\S+?)(?:\.__code__)?$",
        lambda m: ("type", m["source"], "<class 'function'>", None),
    ),
    (r"(?s)GLOBAL_STATE changed: (?P<fields>.*)$", lambda m: ("global_state", m["fields"].strip(), None, None)),
    (r"(?s)___dynx_guard\((?P<quote>['\"])(?P<source>.*)(?P=quote)\) == (?P<expected>.*)$", "custom"),
    (
        r"check_tensor\((?P<source>.*?), \w+, DispatchKeySet\(.*?\), torch\.(?P<dtype>\w+), device=(?P<device>\S+),"
        r" requires_grad=(?P<grad>\w+), size=(?P<size>\[.*?\]), stride=(?P<stride>\[.*?\])\)$",
        _whole_tensor,
    ),
    (r"(?s)TYPE_MISMATCH\((?P<source>.*)\)$", "type"),
    (
        r"_\w+ (?:is present on runtime tensor but was absent|should be absent but is present on runtime tensor)",
        lambda m: ("other", "mark_dynamic, mark_static or mark_unbacked of a tensor", "absent", "present"),
    ),
    (r"___check_metadata_\d+", lambda m: ("other", "metadata of a tensor subclass", None, None)),
    (r"__dtensor_spec_\d+", lambda m: ("other", "mesh and placements of a DTensor", None, None)),
    (
        r"___cow_tensor_matches\((?P<source>.*), (?P<value>True|False)\)$",
        lambda m: ("tensor", m["source"], *_COPY_ON_WRITE[m["value"] == "True"]),
    ),
    (
        r"(?P<source>.*) (?P<op>==|!=) ___get_current_stream\(.*\)$",
        lambda m: ("value", m["source"], *_CURRENT_STREAM[m["op"] == "=="]),
    ),
    (r"(?s)torch\._functorch\.pyfunctorch\.compare_functorch_state\((?P<value>\[.*?\])\)", _functorch),
    (
        r"torch\.autograd\.forward_ad\._current_level == (?P<value>-?\d+)",
        lambda m: ("global_state", "forward_ad_level", f"forward_ad_level {m['value']}", None),
    ),
    (
        r"___(?P<kind>tuple_iterator_len|list_reverseiterator_len|normalize_range_iter|normalize_count_iter)"
        r"\((?P<source>.*)\) == (?P<value>.*)$",
        _iterator,
    ),
    (r"(?P<source>.*)\.raw_repr\(\) == (?P<expected>.*)\.raw_repr\(\)$", "value"),
    (r"(?s)list\((?P<source>.*)\.keys\(\)\) == \[(?P<expected>.*)\]$", "keys"),  # of a types.MappingProxyType
    (r"___check_global_state\(\)", lambda m: ("global_state", "", None, None)),
    (
        r"(?s)torch\._functorch\.\S*saved_tensors_hooks ids == (?P<value>.*?)(?:\s+# .*)?$",
        lambda m: ("global_state", "saved_tensors_hooks", m["value"], None),
    ),
    (
        r"(?s)utils_device\.CURRENT_DEVICE == (?P<value>.*?)(?:\s+# .*)?$",
        lambda m: ("global_state", "default_device", m["value"], None),
    ),
    (
        r"(?s)hasattr\((?P<source>.*), '(?P<name>\w+)'\) == (?P<value>True|False)$",
        lambda m: ("attribute", f"{m['source']}.{m['name']}", *_PRESENCE[m["value"] == "True"]),
    ),
    (r"\(type\((?P<source>.*)\) is (?:float|complex) and .*isnan\(.*\)\)$", lambda m: ("value", m["source"], "nan", None)),
    (r"BACKEND_MATCH failure", lambda m: ("backend", "backend", None, None)),
    (
        r"(?:getattr failed|KeyError|IndexError) on (?:source )?(?P<source>\S+)",
        lambda m: ("attribute", m["source"], "present", "absent"),
    ),
    (r"___check_torch_function_mode_stack\(\)", lambda m: ("global_state", "torch_function_mode_stack", None, None)),
    (r"(?P<source>[^() ]+) is (?P<expected>True|False)$", "value"),
    (
        r"(?s)Duplicate tensors? found(?: where not expected!|: (?P<which>.*))",
        lambda m: ("alias", m["which"] or "", "different tensors", "the same tensor"),
    ),
    (r"(?s)check_no_aliasing\((?P<which>.*)\)$", lambda m: ("alias", m["which"], "different tensors", None)),
    (r"(?s)len\((?P<source>.*)\) (?:==|!=) (?P<expected>\d+)$", "length"),
    (r"not (?P<source>[^\s=<>]+)$", lambda m: ("length", m["source"], "0", None)),
    (r"(?s)list\((?:dict|set)\.(?:keys|__iter__)\((?P<source>.*?)\)\)\[\d+\] == (?P<expected>.*)$", "keys"),
    (r"(?s)(?P<not>not )?set\.__contains__\((?P<source>.*?), (?P<key>.*)\)$", _contains),
    (r"(?s)(?P<not>not )?___(?:dict|set)_contains\((?P<key>.*?), (?P<source>.*)\)$", _contains),
    (
        r"(?s)(?P<not>not )?hasattr\((?P<source>.*), '(?P<name>\w+)'\)$",
        lambda m: ("attribute", f"{m['source']}.{m['name']}", *_PRESENCE[not m["not"]]),
    ),
    (r"(?s)___check_obj_id\((?P<source>.*), \d+\)(?:, type=(?P<type>.*))?$", _identity),
    (r"(?s)___check_type_id\((?P<source>.*), \d+\)(?:, type=(?P<expected>.*))?$", "type"),
    (r"(?s)(?P<source>.*) is (?P<not>not )?None$", lambda m: ("none", m["source"], "not None" if m["not"] else "None", None)),
    (rf"(?s){KEY_OF_DICT} is (?P<source>.*)$", _identity),
    (rf"(?s)(?P<source>.*) is {KEY_OF_DICT}$", _identity),
    (r"(?s)(?P<source>[^() ]+) is (?P<other>[^() ]+)$", lambda m: ("alias", m["source"], f"is {m['other']}", None)),
    (rf"(?s).*{_SIZE}.*", _shape),
    (r"(?s)(?!.*(?:==|!=)).*[<>].*", _bounds),
    (r"\(.* % .*\) (?:==|!=) -?\d+$", _bounds),
    (r"(?s)(?:int|float|str)\((?P<source>.*?)\) (?P<op>==) (?P<value>.*)$", _compare),  # instances of subclasses
    (r"(?s)(?P<source>.*?) (?P<op>==|!=) (?P<value>.*)$", _compare),
)
_PATTERNS = [(re.compile(text), _named_groups(read) if isinstance(read, str) else read) for text, read in _READERS]
