"""Names of guarded values as the user writes them."""

from __future__ import annotations

import re

LOCAL = re.compile(r"\bL\['(\w+)'\]")
_MEMBER = re.compile(r"\.(?:_(?:modules|parameters|buffers)|__dict__\['_(?:modules|parameters|buffers)'\])\['([^']+)'\]")
_IN_DICT = re.compile(r"\.(?:__dict__|_store\._mapping)\['([A-Za-z_]\w*)'\]")  # _mapping: torch_geometric's graphs
_IMPORTED = re.compile(r"\bG\['__import_(\w+)'\]")
_OF_CLASS = re.compile(r"dict\(type\((?P<owner>(?:[^()]|\([^()]*\))*)\)\.__dict__\)\['(?P<name>\w+)'\]")
_CACHE_OF_DISPATCH = re.compile(r"(?:\.dispatcher)?\.dispatch\.__closure__\[\d+\]\.cell_contents\.data$")
_NAMED = re.compile(r"\b(?:G|kwargs)\['(\w+)'\]")
_STATE_KEY = re.compile(r"\[list\(dict\.keys\([^()]*\)\)\[\d+\]\]")
_ENVIRONMENT = re.compile(r"\bos\.environ\._data\[b(?P<name>'[^']*')\]")
_AS_TENSOR = re.compile(r"___(?:from_numpy|as_tensor)\(([^()]*)\)")
ITEM = ".item()"  # ends the source of a Python number that was read from a 0-dim tensor
UNNAMED = re.compile(r"<value of line (?P<line>\d+)>")  # on Python's stack at a graph break: no variable holds it
SIZE = re.compile(r"(?P<tensor>.*)\.size\(\)\[(?P<dim>\d+)\]$")
# "cache.layers[0].keys" or "cache.keys[0]", which may be None or missing before the first call
IN_CONTAINER_OF_OBJECT = re.compile(r"\.\w+\[\w+\]")


def is_array(source: str) -> bool:
    """Return whether the source of a guard names a numpy array, which Dynamo traces as a tensor."""
    return "___from_numpy(" in source


def spoken(source: str) -> str:
    """Return the source of a guard as the user writes it: `self.blocks[0]` for `self._modules['blocks']._modules['0']`."""
    source = LOCAL.sub(r"\1", source)
    source = _MEMBER.sub(lambda match: f"[{match[1]}]" if match[1].isdigit() else f".{match[1]}", source)
    source = _IN_DICT.sub(r".\1", source)
    source = _OF_CLASS.sub(r"\g<owner>.\g<name>", source)
    source = _CACHE_OF_DISPATCH.sub("'s cache of types", source).replace(
        "dispatch_cache.data", "singledispatch's cache of types"
    )
    source = _AS_TENSOR.sub(r"\1", source)
    source = _STATE_KEY.sub("[…]", source)
    source = _IMPORTED.sub(lambda match: match[1].replace("_dot_", "."), source)
    return _ENVIRONMENT.sub(r"os.environ[\g<name>]", _NAMED.sub(r"\1", source))
