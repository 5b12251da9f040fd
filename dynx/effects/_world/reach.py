"""Find all variables that a function may read or change, by the names in its code and in the functions and classes it uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from dynx._reading.names import modules_named_in, names_in
from dynx._reading.owner import owner_of_code, owner_of_module
from dynx._reading.variables import (
    Namespace,
    Variable,
    cells_of_function,
    globals_of_function,
    variables_of_class,
    variables_of_module,
)
from dynx.effects._world.copier import Copier
from dynx.effects._world.layout import OF_LOGGERS, is_constant, is_of_torch


def variables_found(copier: Copier, root: FunctionType | None) -> Iterator[Variable | Namespace]:
    """Yield the variables of the functions, classes, modules and loggers that a copier has found: globals, attributes, cells.

    The caller has to copy the value of each variable with the copier, which thereby finds more functions, classes and modules.
    Paths of the closure cells and globals of `root`, the function of the check, begin with "closure" and "globals".
    """
    names: set[str] = set()  # of attributes and constants, in the code of all functions
    done: set[int] = set()
    looked_up: dict[int, set[str]] = {}  # by id of the module
    home = root.__globals__ if root is not None else None
    while True:
        functions = [function for function in copier.functions if id(function) not in done]
        classes = [cls for cls in tuple(copier.classes) if id(cls) not in done]
        modules = [module for module in copier.modules.values() if not names <= looked_up.get(id(module), set())]
        loggers = [logger for logger in copier.loggers if id(logger) not in done]
        if not functions and not classes and not modules and not loggers:
            return
        for logger in loggers:
            done.add(id(logger))
            for name in OF_LOGGERS:  # the logger itself is not copied
                yield Variable(f"logging.{logger.name}.{name}", vars(logger), name)
            copier.copy(logger.parent)
        for function in functions:
            done.add(id(function))
            is_user = owner_of_code(function.__code__) == "user"
            cells = cells_of_function(function, "" if function is root else function.__qualname__.replace("<locals>.", ""))
            yield from cells if is_user else filter(_may_lead_on, cells)
            if is_user:
                found = names_in(function.__code__)
                names |= found.attributes | found.set_attributes | found.texts
                for module in modules_named_in(function):
                    copier.copy(module)
                is_home, name = function.__globals__ is home, function.__globals__.get("__name__") or function.__module__
                yield from globals_of_function(function, "globals" if is_home else str(name or "globals"))
        for cls in classes:
            done.add(id(cls))
            yield from variables_of_class(cls)
        for module in modules:
            new = names - looked_up.setdefault(id(module), set())
            looked_up[id(module)] |= new
            if owner_of_module(module) == "user":
                yield from variables_of_module(module, new)


def libraries_of(copier: Copier) -> list[ModuleType]:
    """Return the library modules that the user's code names, or that define functions and classes that the copier found."""
    names = {str(function.__globals__.get("__name__")) for function in copier.functions}
    names |= {str(cls.__module__) for cls in copier.classes}
    modules = [*copier.modules.values(), *(sys.modules.get(name) for name in sorted(names))]
    found = {id(module): module for module in modules if isinstance(module, ModuleType)}
    libraries = [module for module in found.values() if owner_of_module(module) == "library"]
    return [module for module in libraries if not module.__name__.startswith("triton")]  # compilations change triton


def _may_lead_on(variable: Variable | Namespace) -> bool:
    """Return whether to copy a cell or default of a library function: only if it holds a function, class or mutable object."""
    if isinstance(variable, Namespace):
        return False
    value: Any = variable.get()
    return type(value) is FunctionType or isinstance(value, type) or not (is_constant(value) or is_of_torch(value))
