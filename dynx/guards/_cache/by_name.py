"""Find compiled functions by qualified name, as dynx reports them, including nested functions (`main.<locals>.step`)."""

from __future__ import annotations

from typing import Any

from dynx._torch.cache.entries import compiled_codes, with_resume_functions
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._torch.compilation.wrappers import is_shared
from dynx.errors import UsageError
from dynx.guards._cache.entries import record_of
from dynx.guards._cache.inspect import inspect
from dynx.guards._cache.target import location_of
from dynx.records import CacheReport


def inspect_named(target: Any, name: str, program: str) -> CacheReport:
    """List the cache entries of a function, with qualified name `name`, and of its resume functions.

    `target` is the function or module; None if only its name is known, as for a nested function. Raises UsageError if no
    function of this name has been compiled in the program, or `target` has no Python code.
    """
    # without resume functions, and the wrapper in which torch calls modules
    codes = [code for code in compiled_codes() if resumed_at(code) is None and not is_shared(code)]
    compiled = {user_name(code.co_qualname): code for code in codes}
    if target is not None and (callable(target) or name not in compiled):
        return inspect(target)
    if name in compiled:
        code = compiled[name]
        return CacheReport(location_of(code), tuple(map(record_of, with_resume_functions([code]))))
    choices = f"compiled functions: {', '.join(compiled)}" if compiled else "the program compiled nothing"
    raise UsageError(f"{program} has no {name}\n  {choices}")
