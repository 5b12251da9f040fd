"""Find compiled functions by qualified name, as dynx reports them, including nested functions (`main.<locals>.step`)."""

from __future__ import annotations

from types import CodeType
from typing import Any

from dynx._torch.cache.entries import compiled_codes, with_resume_functions
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._torch.compilation.wrappers import is_shared
from dynx.errors import UsageError
from dynx.guards._cache.entries import record_of
from dynx.guards._cache.inspect import inspect
from dynx.guards._cache.target import location_of
from dynx.records import CacheReport


def _compiled_functions() -> dict[str, CodeType]:
    """Return the code object of every function with cache entries, by qualified name, in the order of compilation.

    Resume functions, and the wrapper in which torch calls modules, are left out.
    """
    codes = [code for code in compiled_codes() if resumed_at(code) is None and not is_shared(code)]
    return {user_name(code.co_qualname): code for code in codes}


def inspect_named(target: Any, name: str, program: str) -> CacheReport:
    """List the cache entries of a function and of its resume functions.

    Args:
        target: The function or module; None if only its `name` is known, as for a nested function.
        name: The qualified name of the function: `Model.forward`, `main.<locals>.step`.
        program: The name of the program, for error messages.

    Raises:
        UsageError: No function of this name has been compiled, or `target` has no Python code.
    """
    compiled = _compiled_functions()
    if target is not None and (callable(target) or name not in compiled):
        return inspect(target)
    if name in compiled:
        code = compiled[name]
        return CacheReport(location_of(code), tuple(map(record_of, with_resume_functions([code]))))
    choices = f"compiled functions: {', '.join(compiled)}" if compiled else "the program compiled nothing"
    raise UsageError(f"{program} has no {name}\n  {choices}")
