"""`dynx._torch.hooks` replaces attributes of torch: every kind of attribute, restored exactly, invisible to the program."""

from __future__ import annotations

import itertools
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hook_target import new_module

from dynx._handle import Handle
from dynx._torch.hooks import HookPoint, installed, replace, subscribe, wrap
from dynx.errors import UnsupportedTorch, UsageError

KINDS = (
    "function",
    "builtin",
    "cached",
    "Thing.method",
    "Thing.static",
    "Thing.cls",
    "Thing.inherited",
    "Thing.inherited_static",
    "Thing.inherited_cls",
    "Thing.callable_object",
)


@pytest.fixture
def target():
    yield new_module()
    del sys.modules["hook_target"]


@pytest.fixture
def errors():
    """Return a list for what subscribers raise."""
    return []


def point(path):
    return HookPoint("test", f"hook_target:{path}")


def owner_in(module, path):
    return module if "." not in path else module.Thing


def contents(module):
    """Every object that the module and its classes store, by identity."""
    return [(name, id(value)) for owner in (module, module.Base, module.Thing) for name, value in vars(owner).items()]


def call_every_way(module, path, x):
    """Call the attribute as a program may: of a module, of a class, of an instance, through a subclass."""
    name = path.rpartition(".")[2]
    if "." not in path:
        return [getattr(module, name)(x)]
    subclass = type("Sub", (module.Thing,), {})
    results = [getattr(module.Thing(), name)(x), getattr(subclass(), name)(x), getattr(super(subclass, subclass()), name)(x)]
    if path in ("Thing.method", "Thing.inherited"):
        return [*results, getattr(module.Thing, name)(module.Thing(), x)]
    return [*results, getattr(module.Thing, name)(x), getattr(subclass, name)(x)]


def install(how, path, calls, tag):
    """Install a handle that appends `tag` to `calls` whenever the attribute is called."""
    if how == "subscribe":
        return subscribe(point(path), lambda args, kwargs: calls.append(tag), on_error=print)

    def make(original):
        def wrapper(*args, **kwargs):
            calls.append(tag)
            return original(*args, **kwargs)

        return wrapper

    return wrap(point(path), make)


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("how", list(itertools.product(["subscribe", "wrap"], repeat=3)), ids="-".join)
def test_any_order_of_removal_restores_the_exact_attribute(target, path, how):
    """A descriptor is back as the same object; what was inherited is not stored in the subclass any more."""
    before = contents(target)
    for order in itertools.permutations(range(3)):
        calls = []
        handles = {tag: install(kind, path, calls, tag) for tag, kind in enumerate(how)}
        for tag in order:
            ways = len(call_every_way(target, path, 3))
            assert call_every_way(target, path, 4) == [8] * ways
            assert sorted(calls) == sorted(list(handles) * ways * 2), "each installed handle is called once a call"
            calls.clear()
            handles.pop(tag).remove()
        assert not installed()
        assert contents(target) == before
    assert call_every_way(target, path, 3) == [6] * len(call_every_way(target, path, 3))


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["subscribe", "wrap", "remove", "foreign", "foreign_off"]), st.integers(0, 5)), max_size=12
)


@pytest.mark.parametrize("path", KINDS)
def test_foreign_patches_in_between_lose_nothing(path):
    """A profiler may patch the attribute above dynx's wrapper, and take its patch away again at any time."""

    @given(OPERATIONS)
    def play(operations):
        module = new_module()
        before = contents(module)
        calls, handles, foreign = [], {}, []  # foreign: (tag, what it replaced, what it put there)
        owner, name = owner_in(module, path), path.rpartition(".")[2]
        for step, (operation, number) in enumerate(operations):
            if operation in ("subscribe", "wrap"):
                handles[step] = install(operation, path, calls, step)
            elif operation == "remove" and handles:
                handles.pop(list(handles)[number % len(handles)]).remove()
            elif operation == "foreign":
                foreign.append((step, vars(owner).get(name), put_on_top(owner, name, calls, step)))
            elif operation == "foreign_off" and foreign and vars(owner)[name] is foreign[-1][2]:
                take_off(owner, name, foreign.pop()[1])
            calls.clear()
            results = call_every_way(module, path, 3)
            assert results == [6] * len(results)
            assert sorted(calls) == sorted([*handles, *(tag for tag, _, _ in foreign)] * len(results))
        for handle in handles.values():
            handle.remove()
        assert not installed()
        if not foreign:  # whatever a foreign patch restored after us, the next installation cleans up
            install("wrap", path, calls, "last").remove()
            assert contents(module) == before

    try:
        play()
    finally:
        sys.modules.pop("hook_target", None)


def put_on_top(owner, name, calls, tag):
    """Patch an attribute the way that tools outside of dynx do."""
    stored = vars(owner).get(name)
    inner = getattr(owner, name)
    if isinstance(stored, classmethod) or (stored is None and name == "inherited_cls"):

        def foreign_cls(cls, *args):
            calls.append(tag)
            return inner.__func__(cls, *args)

        setattr(owner, name, classmethod(foreign_cls))
    else:

        def foreign(*args):
            calls.append(tag)
            return inner(*args)

        static = isinstance(owner, type) and (isinstance(stored, staticmethod) or "static" in name or "object" in name)
        setattr(owner, name, staticmethod(foreign) if static else foreign)
    return vars(owner)[name]


def take_off(owner, name, stored):
    if stored is None:
        delattr(owner, name)
    else:
        setattr(owner, name, stored)


@pytest.mark.parametrize("how", ["subscribe", "wrap"])
def test_a_patch_on_top_stays_and_a_removed_wrapper_passes_calls_on(target, how):
    """Undoing ours must not undo theirs; theirs holds our function, which must be without effect then."""
    original = target.function
    calls = []
    handle = install(how, "function", calls, "ours")
    ours = target.function
    theirs = target.function = lambda x: ours(x) * 10
    handle.remove()
    assert target.function is theirs
    assert target.function(3) == 60
    assert calls == []
    target.function = original


def test_methods_bound_through_another_base_keep_their_order(target):
    """`Thing` only inherits the method: a class behind it in the resolution order of a subclass overrides it."""

    class Sibling(target.Base):
        def inherited(self, x):
            return "sibling"

        @staticmethod
        def inherited_static(x):
            return "sibling"

        @classmethod
        def inherited_cls(cls, x):
            return cls

    class Both(target.Thing, Sibling): ...

    for name, expected in (("inherited", "sibling"), ("inherited_static", "sibling"), ("inherited_cls", Both)):
        assert getattr(Both(), name)(3) == expected
        for how in ("subscribe", "wrap"):
            with install(how, f"Thing.{name}", [], how):
                assert getattr(Both(), name)(3) == expected


def test_a_subclass_that_overrides_a_method_reaches_the_hook_through_super(target):
    class Sub(target.Thing):
        def inherited(self, x):
            return super().inherited(x) + 1

        def method(self, x):
            return -x

    calls = []
    with install("wrap", "Thing.inherited", calls, "inherited"), install("wrap", "Thing.method", calls, "method"):
        assert (Sub().inherited(3), Sub().method(3)) == (7, -3)
    assert calls == ["inherited"]


def test_a_class_method_gets_the_class_that_it_was_called_on(target):
    seen = []

    class Sub(target.Thing): ...

    for path in ("Thing.cls", "Thing.inherited_cls"):
        with subscribe(point(path), lambda args, kwargs: seen.append(args[0]), on_error=print):
            getattr(Sub, path.partition(".")[2])(3)
            getattr(target.Thing(), path.partition(".")[2])(3)
    assert seen == [Sub, target.Thing] * 2


def test_a_base_and_a_subclass_can_both_be_hooked(target):
    """The hook of the subclass calls what its base has at that moment, a hook that came later included."""
    calls = []
    with install("subscribe", "Thing.inherited", calls, "sub"):
        with subscribe(point("Base.inherited"), lambda a, k: calls.append("base"), on_error=print):
            target.Thing().inherited(3)
        target.Thing().inherited(3)
    assert calls == ["sub", "base", "sub"]


def test_a_hooked_function_keeps_its_name_signature_and_extra_methods(target):
    """Callers clear the caches of cached functions of torch."""
    with install("wrap", "cached", [], "w"):
        assert target.cached(3) == 6
        assert target.cached.cache_info().currsize == 1
        target.cached.cache_clear()
        assert target.cached.__name__ == "cached"
    assert target.cached.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("builtins:dict.get", "immutable type"),
        ("builtins:dict.fromkeys", "immutable type"),
        ("hook_target:Thing.size", "not a function or method, but a property"),
        ("hook_target:Thing", "is a class"),
        ("hook_target:Thing.__subclasses__", "of its metaclass"),
    ],
)
@pytest.mark.parametrize("how", [subscribe, wrap, replace], ids=["subscribe", "wrap", "replace"])
def test_an_attribute_that_cannot_be_wrapped_is_refused(target, path, why, how):
    """A hook that is silently never called is worse than none."""
    before = contents(target)
    options = {"on_error": print} if how is subscribe else {}
    with pytest.raises(UnsupportedTorch, match=why):
        how(HookPoint("test", path, purpose="testing"), lambda *args: print, **options)
    assert not installed()
    assert contents(target) == before


def test_a_wrapper_that_cannot_be_called_is_refused(target):
    before = contents(target)
    with pytest.raises(UsageError, match="returned None"):
        wrap(point("function"), lambda original: None)
    with pytest.raises(UsageError, match="not callable"):
        replace(point("function"), 3)
    with pytest.raises(ZeroDivisionError):
        wrap(point("function"), lambda original: 1 / 0)
    assert not installed()
    assert contents(target) == before


def test_a_hook_point_that_torch_lacks_is_reported():
    with pytest.raises(UnsupportedTorch, match="torch has no math:gone"):
        subscribe(HookPoint("test", "math:gone", purpose="seeing"), lambda a, k: None, on_error=print)


@pytest.mark.parametrize("path", KINDS)
def test_replacements_nest_and_leave_in_any_order(target, path):
    """The newest replacement is called; it need not call what it replaces."""
    before = contents(target)
    first = replace(point(path), lambda *args: "first")
    second = replace(point(path), lambda *args: "second")
    assert set(call_every_way(target, path, 3)) == {"second"}
    first.remove()
    assert set(call_every_way(target, path, 3)) == {"second"}
    first = replace(point(path), lambda *args: "first")
    first.remove()
    assert set(call_every_way(target, path, 3)) == {"second"}
    second.remove()
    assert contents(target) == before


def test_a_replacement_is_not_changed_itself(target):
    def fn(x):
        return None

    before = dict(vars(fn))
    with replace(point("function"), fn):
        assert target.function(3) is None
    assert vars(fn) == before


@pytest.mark.parametrize("kind", ["subscribe", "wrap"])
def test_every_handle_is_a_context_manager_that_can_be_removed_twice(target, kind):
    handle = install(kind, "function", [], "tag")
    assert isinstance(handle, Handle)
    other = install(kind, "function", calls := [], "other")
    with handle:
        pass
    handle.remove()
    target.function(3)
    assert calls == ["other"]
    other.remove()


@pytest.mark.parametrize("path", KINDS)
def test_threads_that_install_and_remove_lose_no_result(target, path):
    before = contents(target)
    failures = []

    def work(how):
        try:
            for _ in range(50):
                calls = []
                with install(how, path, calls, how):
                    results = call_every_way(target, path, 3)
                    assert results == [6] * len(results)
                    assert len(calls) >= len(results)
        except BaseException as error:  # noqa: BLE001 - the assertions of a thread too
            failures.append(error)

    threads = [threading.Thread(target=work, args=(how,)) for how in ("subscribe", "wrap") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not installed()
    assert contents(target) == before


def test_subscribers_run_in_order_and_finish_in_reverse(target):
    order = []

    def named(name):
        def before(args, kwargs):
            order.append(name)
            return lambda result, raised: order.append((name, result))

        return before

    with subscribe(point("function"), named("a"), on_error=print), subscribe(point("function"), named("b"), on_error=print):
        target.function(3)
    assert order == ["a", "b", ("b", 6), ("a", 6)]


def test_an_error_in_a_subscriber_is_reported_and_the_call_continues(target):
    reports = []

    def report(hook, error):
        reports.append((hook, str(error)))

    def fails_before(args, kwargs):
        raise RuntimeError("before")

    def fails_after(args, kwargs):
        def after(result, raised):
            raise RuntimeError("after")

        return after

    with (
        subscribe(point("function"), fails_before, on_error=report),
        subscribe(point("function"), fails_after, on_error=report),
    ):
        assert target.function(3) == 6
    assert reports == [("test", "before"), ("test", "after")]


def test_the_programs_exception_passes_through(target):
    seen = []
    with (
        subscribe(point("function"), lambda a, k: lambda result, raised: seen.append(raised), on_error=print),
        pytest.raises(ValueError, match="-1") as raised,
    ):
        target.function(-1)
    assert seen == [raised.value]


def test_a_subscriber_removed_during_a_call_still_gets_its_result(target):
    ended = []

    def before(args, kwargs):
        handle.remove()
        return lambda result, raised: ended.append(result)

    handle = subscribe(point("function"), before, on_error=print)
    assert target.function(3) == 6
    assert ended == [6]
    assert not installed()


def test_a_subscription_can_be_limited_to_its_thread(target):
    calls = []
    with subscribe(point("function"), lambda a, k: calls.append(a), on_error=print, this_thread_only=True):
        thread = threading.Thread(target=target.function, args=(1,))
        thread.start()
        thread.join()
        target.function(2)
    assert calls == [(2,)]


@pytest.mark.parametrize("wrappers", [0, 1, 2])
@pytest.mark.parametrize("inherited", [False, True])
def test_stack_depths_passed_to_torch_count_the_frames_of_dynx(target, wrappers, inherited):
    """Torch records the user line of a guard as so many frames above its own function."""

    class Base:
        def caller(self, *, skip=0):
            return sys._getframe(1 + skip).f_code.co_name

    target.Deep = type("Deep", (Base,), {} if inherited else dict(vars(Base)))
    deep = HookPoint("deep", "hook_target:Deep.caller", skips=True)

    def make(original):
        def wrapper(*args, **kwargs):
            return original(*args, **kwargs)

        return wrapper

    def user():
        return target.Deep().caller()

    assert user() == "user"
    handles = [wrap(deep, make) for _ in range(wrappers)]
    with subscribe(deep, lambda a, k: None, on_error=print):
        assert user() == "user"
    assert user() == "user"
    for handle in handles:
        handle.remove()
