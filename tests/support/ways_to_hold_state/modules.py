"""State that modules hold, however a function comes to the module, and globals."""

from __future__ import annotations

import importlib
import sys
import types

import support.state_package.part
from support import state_package
from support.state_package import part as part_of_package
from support.ways_to_hold_state.kinds import way

held = None  # what some ways put their state into
mutate_held = None
module_without_file = types.ModuleType("module_without_file")
sys.modules["module_without_file"] = module_without_file


@way
def global_variable(mutate, state):
    global held, mutate_held
    held, mutate_held = state, mutate

    def f(x):
        mutate_held(held)
        return x * 2

    return f


@way
def module_in_a_global(mutate, state):
    support.state_package.part.held, support.state_package.part.mutate = state, mutate

    def f(x):
        support.state_package.part.change()
        return x * 2

    return f


@way
def module_in_a_module(mutate, state):
    state_package.part.held = state

    def f(x):
        mutate(state_package.part.held)
        return x * 2

    return f


@way
def module_under_another_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(part_of_package.held)
        return x * 2

    return f


@way
def module_in_a_closure(mutate, state):
    module = part_of_package
    module.held = state

    def f(x):
        mutate(module.held)
        return x * 2

    return f


@way
def module_in_a_container(mutate, state):
    modules = {"part": part_of_package}
    part_of_package.held = state

    def f(x):
        mutate(modules["part"].held)
        return x * 2

    return f


@way
def module_imported_inside(mutate, state):
    part_of_package.held = state

    def f(x):
        import support.state_package.part as part

        mutate(part.held)
        return x * 2

    return f


@way
def name_imported_inside(mutate, state):
    part_of_package.held = state

    def f(x):
        from support.state_package.part import held

        mutate(held)
        return x * 2

    return f


@way
def module_that_has_no_file(mutate, state):
    module_without_file.held = state

    def f(x):
        mutate(module_without_file.held)
        return x * 2

    return f


@way
def module_found_by_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(sys.modules["support.state_package.part"].held)
        return x * 2

    return f


@way
def module_imported_by_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(importlib.import_module("support.state_package.part").held)
        return x * 2

    return f


@way
def computed_attribute_of_a_module(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(getattr(part_of_package, "".join(("he", "ld"))))
        return x * 2

    return f


@way
def computed_global(mutate, state):
    global held
    held = state

    def f(x):
        mutate(globals()["".join(("he", "ld"))])
        return x * 2

    return f


@way
def global_by_a_constant_name(mutate, state):
    global held
    held = state

    def f(x):
        mutate(globals()["held"])
        return x * 2

    return f


@way
def attribute_by_a_constant_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(getattr(part_of_package, "held"))  # noqa: B009
        return x * 2

    return f


@way
def globals_of_executed_code(mutate, state):
    scope = {"mutate": mutate, "held": state}
    exec("def f(x):\n    mutate(held)\n    return x * 2", scope)
    return scope["f"]
