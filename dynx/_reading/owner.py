"""Who wrote a function, a class or a module: the user, torch, dynx, Python's standard library, or another library."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType, ModuleType

from dynx._reading.user_location import Owner, owner_of_file

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_OF_BINDINGS = ("_cython_", "cython_runtime", "swig_runtime_data")  # modules without files that compiled extensions share


def owner_of_code(code: CodeType) -> Owner:
    """Return who wrote the file of a code object: "user", "torch", "dynx", "python" or "library"."""
    return owner_of_file(code.co_filename).kind


def owner_of_module(module: ModuleType) -> Owner:
    """Return who wrote a module; a module without a file is the user's, unless it belongs to Python or a library."""
    attributes = vars(module)
    file = attributes.get("__file__")
    name = str(attributes.get("__name__", ""))
    if name.startswith("torch."):  # also code that inductor writes into its cache
        return "torch"
    if isinstance(file, str):
        return owner_of_file(file).kind
    paths = attributes.get("__path__")
    if paths is not None:  # a namespace package
        folder = next(iter(paths), None)
        if isinstance(folder, str):
            return owner_of_file(f"{folder}/__init__.py").kind
    if name.startswith(_OF_BINDINGS):
        return "library"
    package = name.partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        return "python"
    outer = sys.modules.get(package)
    return owner_of_module(outer) if isinstance(outer, ModuleType) and outer is not module else "user"


def owner_of_class(cls: type) -> Owner:
    """Return who wrote a class: the author of its module, or the user if the user wrote one of its methods."""
    if not cls.__flags__ & _HEAP_TYPE:
        return "python"
    codes = [value.__code__ for value in vars(cls).values() if type(value) is FunctionType]
    owners = [owner_of_code(code) for code in codes if not code.co_filename.startswith("<")]
    name = vars(cls).get("__module__")
    module = sys.modules.get(name) if isinstance(name, str) and name != "builtins" else None
    if "user" in owners:
        return "user"
    return owner_of_module(module) if isinstance(module, ModuleType) else owners[0] if owners else "user"
