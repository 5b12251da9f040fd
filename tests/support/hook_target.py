"""A module with every kind of attribute that dynx hooks, as a stand-in for torch."""

from __future__ import annotations

import functools
import operator
import sys
import types


def new_module():
    """Return a module with one attribute of each kind; each of them returns twice its argument."""
    module = types.ModuleType("hook_target")

    class Doubles:
        def __call__(self, x):
            return x * 2

    class Base:
        def inherited(self, x):
            return x * 2

        @staticmethod
        def inherited_static(x):
            return x * 2

        @classmethod
        def inherited_cls(cls, x):
            return (x * 2, cls)[0]

        size = property(lambda self: 2)

    class Thing(Base):
        def method(self, x):
            return x * 2

        @staticmethod
        def static(x):
            return x * 2

        @classmethod
        def cls(cls, x):
            return (x * 2, cls)[0]

        callable_object = Doubles()

    def function(x):
        if x < 0:
            raise ValueError(x)
        return x * 2

    @functools.lru_cache
    def cached(x):
        return x * 2

    module.Base, module.Thing, module.function, module.cached = Base, Thing, function, cached
    module.builtin = operator.methodcaller("__mul__", 2)
    sys.modules["hook_target"] = module
    return module
