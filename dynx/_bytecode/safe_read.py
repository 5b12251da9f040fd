"""Read guarded values without running any of the user's code.

torch's guards may call properties and `__eq__`. These functions only follow instance dictionaries and built-in containers, and
return None (unknown) if they do not reach the value. A *source* is the expression by which torch's messages name a guarded
value, `self.layers[0].scale`; `locals` and `globals` are those of the compiled frame.
"""

from __future__ import annotations

import ast
import gc
import itertools
import math
import re
from collections import deque, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from enum import EnumMeta
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal, NamedTuple

from dynx._bytecode.cells import is_filled

Holder = Literal["argument", "global", "module", "optimizer", "object"]

UNKNOWN = object()
_FIELD = type(namedtuple("_Fields", "field").field)  # type: ignore[attr-defined]
_SIZED: tuple[Any, ...] = (list, tuple, dict, set, frozenset, str, deque)
_CONSTANTS: tuple[Any, ...] = (bool, int, float, complex, str, bytes)
_CONTAINERS: tuple[Any, ...] = (list, tuple, set, frozenset, type({}.keys()))
_SIZED_ITERATORS: tuple[Any, ...] = (type(iter(())), type(reversed([])))
_RANGE_ITERATOR = type(iter(range(0)))
_TORCH_CONSTANTS = ("dtype", "device", "layout", "memory_format", "DispatchKeySet")
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")  # torch.nn.Module.__getattr__ looks here
_IN_MESSAGE = (type(None), bool, int, float, str, bytes, dict, list, tuple, set)  # types whose expected value torch prints
_CONSTANT_KEY = re.compile(r"[0-9]+|'[^'\\]*'|\"[^\"\\]*\"")  # of a subscript, as source
_DIMENSION = re.compile(r"(?P<tensor>.+)\.(?P<what>(?:size|stride)(?=\(\)\[)|storage_offset)\(\)(?:\[(?P<dim>\d+)\])?")
_MAX_LENGTH = 80  # characters of a value
_MAX_KEYS = 8  # of a dict
_MAX_KEY_TEXTS = 64  # of a dict whose keys are compared
_MAX_ITEMS = 1000  # of a container that is rendered; the text is cut long before


def describe(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return the value of an expression (`source`), such as `self.scale`, as short text; None if it cannot be read safely."""
    value = resolve(source, locals, globals)
    return None if value is UNKNOWN else text_of(value)


def length(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return as text the length of the container or iterator named by the expression `source`; runs no overridden `__len__`."""
    value = resolve(source, locals, globals)
    if type(value) in _SIZED_ITERATORS:
        return str(value.__length_hint__())
    for base in _SIZED:
        if issubclass(type(value), base):
            return str(base.__len__(value))
    return None


def member_at(address: int, source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return as text (`Color.RED`) the enum member whose `id()` is `address`; None if there is none.

    `source` is an expression; the member is searched in the enum class of its value.
    """
    cls = type(resolve(source, locals, globals))
    members = vars(cls).get("_member_map_", {}) if type(cls) is EnumMeta else {}
    return next((text_of(member) for member in members.values() if id(member) == address), None)


def keys(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return as one text the keys of the dict that the expression `source` names; None if the value is no dict."""
    value = _unproxied(resolve(source, locals, globals))
    return joined_keys([text_of(key) for key in dict.keys(value)]) if issubclass(type(value), dict) else None


def joined_keys(names: Sequence[str]) -> str:
    """Join the keys of a dict (as texts) with commas; if there are more than eight, join the first eight and add the count."""
    return ", ".join(names[:_MAX_KEYS]) + (f", … {len(names)} in all" if len(names) > _MAX_KEYS else "")


def contains(source: str, member: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> bool:
    """Return whether the expression `source` names a set that has an item with the text `member`; False if unreadable."""
    value = resolve(source, locals, globals)
    for base in (set, frozenset):
        if issubclass(type(value), base):
            return any(text_of(item) == member for item in base.__iter__(value))
    return False


def key_texts(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return as texts the keys of the dict named by the expression `source`; None if it is no dict or has more than 64 keys."""
    return _key_texts(resolve(source, locals, globals))


def _key_texts(value: Any) -> tuple[str, ...] | None:
    value = _unproxied(value)
    if not issubclass(type(value), dict) or len(dict.keys(value)) > _MAX_KEY_TEXTS:
        return None
    return tuple(text_of(key) for key in dict.keys(value))


def holder(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Holder:
    """Return where the value of the expression `source` is stored: "argument", "global", "module", "optimizer" or "object"."""
    try:
        node = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return "object"
    if isinstance(node, ast.Name):
        return "argument"
    inner: ast.expr = node
    direct = True
    while isinstance(inner, (ast.Attribute, ast.Subscript)):
        inner = inner.value
        owner = globals if isinstance(inner, ast.Name) and inner.id == "G" else follow(inner, locals, globals)
        if _is_a(owner, "torch.optim", "Optimizer"):
            return "optimizer"
        if direct and (owner is globals or issubclass(type(owner), ModuleType)):
            return "global"
        if direct and is_module(owner):
            return "module"
        direct = False
    return "object"


class Described(NamedTuple):
    """Guarded values at compile time as texts, to explain a later recompile: dicts from expressions (`self.scale`) to texts."""

    objects: dict[str, str]  # values that torch may guard by identity, keeping only the address; types of tensors
    keys: dict[str, tuple[str, ...]]  # of dicts
    types: dict[str, str]  # of dicts


def described(sources: Iterable[str], locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Described:
    """Return texts of values that torch's messages about failed guards do not show: objects, and keys of dicts."""
    result = Described({}, {}, {})
    known: dict[str, Any] = {}
    for source in sources:
        value = resolve_once(source, locals, globals, known)
        if value is not UNKNOWN and type(value) not in _IN_MESSAGE:
            result.objects[source] = str(type(value)) if _is_a(value, "torch", "Tensor") else text_of(value)
        if (keys := _key_texts(value)) is not None:
            result.keys[source] = keys
            result.types[source] = str(type(value))
    return result


def is_absent(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> bool:
    """Return whether the expression `source` has no value, or one that cannot be read safely."""
    return resolve(source, locals, globals) is UNKNOWN


def is_module(value: Any) -> bool:
    """Return whether a value is a torch.nn.Module, judged by the names of its base classes."""
    return _is_a(value, "torch.nn", "Module")


def _is_a(value: Any, package: str, name: str) -> bool:
    return any(base.__name__ == name and base.__module__.startswith(package) for base in type(value).__mro__)


def text_of(value: Any) -> str:
    """Render a value as short text; the `__repr__` of the user's own classes is not called."""
    if issubclass(type(type(value)), EnumMeta):
        return f"{type(value).__qualname__}.{object.__getattribute__(value, '_name_')}"
    if is_plain(value):
        return shortened(repr(value))
    for base in _CONSTANTS:
        if issubclass(type(value), base):  # a subclass may have a `__repr__` of its own
            return shortened(base.__repr__(value))
    if type(value) in (type, FunctionType, BuiltinFunctionType, MethodType):
        return str(value.__qualname__).replace("_VariableFunctionsClass.", "torch.")
    if type(value) is CodeType:
        return value.co_qualname
    if type(value) is ModuleType:
        return f"module {object.__getattribute__(value, '__dict__').get('__name__')}"
    if type(value) is _RANGE_ITERATOR:
        return f"iterator of {value.__reduce__()[1][0]}"
    if type(value) is itertools.count:
        return _count_text(value)
    return f"a {type(value).__qualname__}"


def shortened(text: str) -> str:
    """Cut a text to at most 80 characters, with an ellipsis at the end."""
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value is a constant or a small built-in container of constants, whose repr runs no code of the user."""
    if value is None or type(value) in _CONSTANTS or _is_torch_constant(value):
        return True
    if type(value) in (range, slice):
        parts = (value.start, value.stop, value.step)
        return all(part is None or type(part) is int for part in parts)
    if depth > 2 or (type(value) not in _CONTAINERS and not _is_torch_size(value)) or len(value) > _MAX_ITEMS:
        return False
    return all(is_plain(item, depth + 1) for item in value)


def _is_torch_constant(value: Any) -> bool:
    return type(value).__module__ in ("torch", "torch._C") and type(value).__qualname__ in _TORCH_CONSTANTS


def _is_torch_size(value: Any) -> bool:
    return type(value).__module__ == "torch" and type(value).__qualname__ == "Size"


def _count_text(counter: Any) -> str:
    """Render an `itertools.count` with its step, even a step of 1, which its repr omits."""
    if not all(is_plain(part) for part in gc.get_referents(counter) if part is not type(counter)):
        return "a count"
    text = repr(counter)
    return text if "," in text else f"{text[:-1]}, 1)"


def resolve(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    """Return the value of the expression `source`, such as `self.scale`; `UNKNOWN` if it cannot be read safely."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return UNKNOWN
    return follow(tree, locals, globals)


def resolve_once(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any], known: dict[str, Any]) -> Any:
    """Return the same as `resolve`; `known` caches values by expression, such as `self._modules` for `self._modules['a']`.

    A compilation may guard thousands of expressions of one module; parsing all of them would add 1 % to the compile time.
    """
    if source not in known:
        subscripted = source.endswith("]")
        owner, _, last = source.removesuffix("]").rpartition("[" if subscripted else ".")
        is_item = subscripted and owner not in ("L", "G") and _CONSTANT_KEY.fullmatch(last)
        if is_item:
            value = _item(resolve_once(owner, locals, globals, known), int(last) if last.isdigit() else last[1:-1])
        elif not subscripted and owner and last.isidentifier():
            value = _attribute(resolve_once(owner, locals, globals, known), last)
        else:
            value = resolve(source, locals, globals)
        known[source] = value
    return known[source]


def follow(node: ast.expr, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    """Return the value of a parsed expression; `UNKNOWN` if it cannot be read safely."""
    if isinstance(node, ast.Name):
        return locals.get(node.id, UNKNOWN)
    if isinstance(node, ast.Subscript):
        return _subscript(node, locals, globals)
    if isinstance(node, ast.Attribute):
        return _attribute(follow(node.value, locals, globals), node.attr)
    if isinstance(node, ast.Call) and not node.keywords:
        return _call(ast.unparse(node.func), node, locals, globals)
    return UNKNOWN


def _subscript(node: ast.Subscript, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        scope = {"G": globals, "L": locals}.get(node.value.id, {})  # torch's scopes; a local may have the same name
        key = node.slice.value
        if isinstance(key, str) and key in scope:
            return scope[key]
    return _item_of_node(follow(node.value, locals, globals), node.slice, locals, globals)


def _item_of_node(owner: Any, node: ast.expr, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    """Return `owner[key]`, where `node` is the AST of the key: a constant, a repr (`torch.float32`), or an expression."""
    if isinstance(node, ast.Constant):
        return _item(owner, node.value)
    if not issubclass(type(owner), dict) or len(dict.keys(owner)) > _MAX_KEY_TEXTS:
        return UNKNOWN
    text, wanted = ast.unparse(node), follow(node, locals, globals)
    for key, value in dict.items(owner):  # a lookup would run the `__eq__` of the key
        if key is wanted or (is_plain(key) and repr(key) == text):
            return value
    return UNKNOWN


def _call(function: str, node: ast.Call, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Any:
    """Return the result of a call, such as `type(x)`, in an expression; `UNKNOWN` unless the call is known to be safe."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and not node.args:
        return _only_element(follow(node.func.value, locals, globals))
    if function not in ("type", "dict", "list", "dict.keys", "dict.__getitem__") or not node.args:
        return UNKNOWN
    value = follow(node.args[0], locals, globals)
    if value is UNKNOWN:
        return UNKNOWN
    if function == "type":
        return type(value)
    if function == "list":
        return value if type(value) is list else UNKNOWN
    value = _unproxied(value)
    if not issubclass(type(value), dict):
        return UNKNOWN
    if function == "dict.__getitem__" and len(node.args) > 1:
        return _item_of_node(value, node.args[1], locals, globals)
    return value if function == "dict" else list(dict.keys(value)) if function == "dict.keys" else UNKNOWN


def _unproxied(value: Any) -> Any:
    """Return the mapping inside a `types.MappingProxyType`, whose methods may run user code; return other values unchanged."""
    return gc.get_referents(value)[0] if type(value) is MappingProxyType else value


def _only_element(tensor: Any) -> Any:
    """Return `tensor.item()`; `UNKNOWN` for a tensor with several elements, or a subclass that might run the user's code."""
    sizes = shape_of(tensor)
    return tensor.item() if sizes is not None and math.prod(sizes) == 1 else UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    if owner is UNKNOWN:
        return UNKNOWN
    if issubclass(type(owner), type) and name in ("__dict__", "__mro__"):
        return type.__dict__[name].__get__(owner)
    own = members_of(owner)
    if name == "__dict__":
        return own
    if name in own:
        return _of_class(own[name]) if issubclass(type(owner), type) else own[name]
    for name_of_dict in _MODULE_DICTS:
        members = own.get(name_of_dict)
        if isinstance(members, dict) and name in members:
            return members[name]
    if name == "grad" and is_plain_tensor(owner):
        return owner.grad if owner.is_leaf else UNKNOWN  # torch warns about `grad` of non-leaf tensors
    if type(owner) is CellType and name == "cell_contents":
        return owner.cell_contents if is_filled(owner) else UNKNOWN
    for base in type(owner).__mro__:
        attribute = vars(base).get(name, UNKNOWN)
        if _is_stored(attribute, owner):
            return _stored(attribute, owner)
        if attribute is not UNKNOWN:
            return UNKNOWN if hasattr(type(attribute), "__get__") else attribute  # a descriptor may run the user's code
    return UNKNOWN


def members_of(owner: Any) -> Mapping[str, Any]:
    """Return the `__dict__` of an object; empty if it has none."""
    try:
        members: Mapping[str, Any] = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return members


def _of_class(attribute: Any) -> Any:
    """Return what `Class.attribute` is, from what the class has: methods of the class are made anew by each access."""
    if type(attribute) is staticmethod:
        return attribute.__func__
    return UNKNOWN if type(attribute) is classmethod else attribute


def _is_stored(attribute: Any, owner: Any) -> bool:
    """Return whether a descriptor only reads stored data: a slot, a field of a namedtuple, an attribute of a function."""
    if type(attribute) is GetSetDescriptorType:
        return type(owner) is FunctionType
    return type(attribute) is MemberDescriptorType or (type(attribute) is _FIELD and issubclass(type(owner), tuple))


def _stored(attribute: Any, owner: Any) -> Any:
    try:
        return attribute.__get__(owner)
    except AttributeError:  # an empty slot
        return UNKNOWN


def _item(owner: Any, key: Any) -> Any:
    """Return `owner[key]`, read with the method of the built-in dict, list, tuple or deque, even if a subclass overrides it.

    `isinstance` is avoided because it may run the user's `__class__`.
    """
    owner = _unproxied(owner)
    kind = type(owner)
    try:
        if issubclass(kind, dict):
            return dict.__getitem__(owner, key) if type(key) in (str, int, bytes) else UNKNOWN
        for base in (list, tuple, deque):
            if issubclass(kind, base) and type(key) is int:
                return base.__getitem__(owner, key)
    except (KeyError, IndexError):
        pass
    return UNKNOWN


def type_name(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return as text the type of the value of the expression `source`, such as `<class 'int'>`; None if it is unreadable."""
    value = resolve(source, locals, globals)
    return None if value is UNKNOWN else str(type(value))


def dimension(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> str | None:
    """Return the value of an expression, such as the size `x.size()[0]` or a stride, as text; None if it cannot be read."""
    match = _DIMENSION.fullmatch(source)
    if match is None:
        return describe(source, locals, globals)
    tensor, dims = resolve(match["tensor"], locals, globals), [int(match["dim"])] if match["dim"] else []
    try:
        return str(getattr(tensor, match["what"])(*dims)) if is_plain_tensor(tensor) else None
    except (IndexError, RuntimeError, NotImplementedError):  # fewer dims; a sparse tensor has no strides and no storage
        return None


def is_plain_tensor(value: Any) -> bool:
    """Return whether a value is exactly a `Tensor` or `Parameter`; another subclass might run the user's code."""
    return type(value).__module__ in ("torch", "torch.nn.parameter") and type(value).__qualname__ in ("Tensor", "Parameter")


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the sizes of a plain tensor; None for a subclass, which might run the user's code."""
    return tuple(value.shape) if is_plain_tensor(value) else None


def sizes(source: str, locals: Mapping[str, Any], globals: Mapping[str, Any]) -> tuple[int, ...] | float | None:
    """Return the value of the expression `source` if it is a number, or its sizes if it is a tensor; else None."""
    value = resolve(source, locals, globals)
    if type(value) in (int, float):
        return value
    if not is_plain_tensor(value) or value.is_nested:
        return None
    shape = tuple(value.shape)
    return shape if all(type(size) is int for size in shape) else None  # a comparison with a symbol would add a guard
