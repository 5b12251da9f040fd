"""State that classes hold: in closures of methods, attributes, descriptors, metaclasses, enums."""

from __future__ import annotations

import enum
import functools

from support.ways_to_hold_state.kinds import way


@way
def closure_of_method_of_object_made_inside(mutate, state):
    class R:
        def go(self):
            mutate(state)

    def f(x):
        R().go()
        return x * 2

    return f


@way
def closure_of_method_of_object_made_outside(mutate, state):
    class R:
        def go(self):
            mutate(state)

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def closure_of_inherited_method(mutate, state):
    class Base:
        def go(self):
            mutate(state)

    class R(Base):
        pass

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def closure_of_static_method(mutate, state):
    class R:
        @staticmethod
        def go():
            mutate(state)

    def f(x):
        R.go()
        return x * 2

    return f


@way
def closure_of_class_method(mutate, state):
    class R:
        @classmethod
        def go(cls):
            mutate(state)

    def f(x):
        R.go()
        return x * 2

    return f


@way
def closure_of_property(mutate, state):
    class R:
        @property
        def go(self):
            mutate(state)
            return 2

    r = R()

    def f(x):
        return x * r.go

    return f


@way
def closure_of_cached_property(mutate, state):
    class R:
        @functools.cached_property
        def go(self):
            mutate(state)
            return 2

    r = R()

    def f(x):
        return x * r.go

    return f


@way
def closure_of_init(mutate, state):
    class R:
        def __init__(self):
            mutate(state)

    def f(x):
        R()
        return x * 2

    return f


@way
def closure_of_operator(mutate, state):
    class R:
        def __mul__(self, other):
            mutate(state)
            return other * 2

    r = R()

    def f(x):
        return r * x

    return f


@way
def closure_of_context_manager(mutate, state):
    class R:
        def __enter__(self):
            mutate(state)

        def __exit__(self, *error):
            pass

    def f(x):
        with R():
            return x * 2

    return f


@way
def class_attribute_of_object_made_inside(mutate, state):
    class R:
        kept = state

        def go(self):
            mutate(self.kept)

    def f(x):
        R().go()
        return x * 2

    return f


@way
def class_attribute_of_object_made_outside(mutate, state):
    class R:
        kept = state

        def go(self):
            mutate(self.kept)

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def attribute_of_class_in_a_cell(mutate, state):
    class R:
        kept = state

    def f(x):
        mutate(R.kept)
        return x * 2

    return f


@way
def attribute_of_class_in_a_dict(mutate, state):
    class R:
        kept = state

    table = {"r": R}

    def f(x):
        mutate(table["r"].kept)
        return x * 2

    return f


@way
def attribute_of_class_as_argument(mutate, state):
    class R:
        kept = state

    def f(cls, x):
        mutate(cls.kept)
        return x * 2

    return f, R


@way
def attribute_of_nested_class(mutate, state):
    class R:
        class Inner:
            kept = state

    def f(x):
        mutate(R.Inner.kept)
        return x * 2

    return f


@way
def attribute_of_base_class(mutate, state):
    class Base:
        kept = state

    class R(Base):
        pass

    def f(x):
        mutate(R.kept)
        return x * 2

    return f


@way
def attribute_of_class_made_by_type(mutate, state):
    R = type("R", (), {"kept": state})

    def f(x):
        mutate(R.kept)
        return x * 2

    return f


@way
def attribute_of_metaclass(mutate, state):
    class Meta(type):
        kept = state

    class R(metaclass=Meta):
        pass

    def f(x):
        mutate(type(R).kept)
        return x * 2

    return f


@way
def closure_of_metaclass_method(mutate, state):
    class Meta(type):
        def go(cls):
            mutate(state)

    class R(metaclass=Meta):
        pass

    def f(x):
        R.go()
        return x * 2

    return f


@way
def data_descriptor(mutate, state):
    class Field:
        def __init__(self):
            self.kept = state

        def __get__(self, instance, owner):
            mutate(self.kept)
            return 2

        def __set__(self, instance, value):
            pass

    class R:
        field = Field()

    r = R()

    def f(x):
        return x * r.field

    return f


@way
def data_descriptor_that_is_set(mutate, state):
    class Field:
        def __init__(self):
            self.kept = state

        def __get__(self, instance, owner):
            return 2

        def __set__(self, instance, value):
            mutate(self.kept)

    class R:
        field = Field()

    r = R()

    def f(x):
        r.field = 1
        return x * r.field

    return f


@way
def non_data_descriptor(mutate, state):
    class Field:
        kept = state

        def __get__(self, instance, owner):
            mutate(self.kept)
            return 2

    class R:
        field = Field()

    def f(x):
        return x * R().field

    return f


@way
def slot(mutate, state):
    class R:
        __slots__ = ("kept",)

    r = R()
    r.kept = state

    def f(x):
        mutate(r.kept)
        return x * 2

    return f


@way
def callable_object(mutate, state):
    class Fn:
        def __init__(self):
            self.kept = state

        def __call__(self, x):
            mutate(self.kept)
            return x * 2

    return Fn()


@way
def closure_of_call(mutate, state):
    class Fn:
        def __call__(self, x):
            mutate(state)
            return x * 2

    return Fn()


@way
def bound_method(mutate, state):
    class R:
        def __init__(self):
            self.kept = state

        def f(self, x):
            mutate(self.kept)
            return x * 2

    return R().f


@way
def default_of_a_method(mutate, state):
    class R:
        def go(self, kept=state):
            mutate(kept)

    def f(x):
        R().go()
        return x * 2

    return f


@way
def cached_static_method(mutate, state):
    class R:
        @staticmethod
        @functools.cache
        def go():
            mutate(state)

    def f(x):
        R.go()
        return x * 2

    return f


@way
def computed_attribute_of_a_class(mutate, state):
    class R:
        kept = state

    def f(x):
        mutate(getattr(R, "".join(("ke", "pt"))))
        return x * 2

    return f


@way
def member_of_an_enum(mutate, state):
    class Mode(enum.Enum):
        FAST = state

    def f(x):
        mutate(Mode.FAST.value)
        return x * 2

    return f
