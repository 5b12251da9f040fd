"""`dynx._torch.hooks` hooks every kind of attribute and restores it exactly; the program does not notice."""

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
    """Return a list for exceptions that subscribers raise."""
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
def test_removing_hooks_in_any_order_restores_the_exact_attribute(target, path, how):
    """A descriptor is restored as the same object; an inherited method is not left behind in the subclass."""
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
def test_patches_of_other_tools_between_hooks_lose_no_call(path):
    """A profiler may patch an attribute that dynx has wrapped, and remove its patch at any time."""

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
        if not foreign:  # a foreign patch may have restored a removed wrapper; the next installation drops it
            install("wrap", path, calls, "last").remove()
            assert contents(module) == before

    try:
        play()
    finally:
        sys.modules.pop("hook_target", None)


def put_on_top(owner, name, calls, tag):
    """Patch an attribute as another tool does, without `dynx._torch.hooks`."""
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
def test_removing_a_hook_keeps_a_later_patch_of_another_tool(target, how):
    """The function of the other tool still calls the wrapper of dynx, which then only calls the original."""
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


def test_hook_on_an_inherited_method_keeps_the_method_resolution_order(target):
    """`Thing` inherits the hooked method; in `Both`, `Sibling` comes after `Thing` in the resolution order and overrides it."""

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


def test_super_call_in_an_overriding_method_reaches_the_hook(target):
    class Sub(target.Thing):
        def inherited(self, x):
            return super().inherited(x) + 1

        def method(self, x):
            return -x

    calls = []
    with install("wrap", "Thing.inherited", calls, "inherited"), install("wrap", "Thing.method", calls, "method"):
        assert (Sub().inherited(3), Sub().method(3)) == (7, -3)
    assert calls == ["inherited"]


def test_hooked_class_method_gets_the_class_that_it_was_called_on(target):
    seen = []

    class Sub(target.Thing): ...

    for path in ("Thing.cls", "Thing.inherited_cls"):
        with subscribe(point(path), lambda args, kwargs: seen.append(args[0]), on_error=print):
            getattr(Sub, path.partition(".")[2])(3)
            getattr(target.Thing(), path.partition(".")[2])(3)
    assert seen == [Sub, target.Thing] * 2


def test_method_can_be_hooked_on_a_class_and_on_its_base(target):
    """The hook of the subclass calls the current method of the base, including a hook that was installed later."""
    calls = []
    with install("subscribe", "Thing.inherited", calls, "sub"):
        with subscribe(point("Base.inherited"), lambda a, k: calls.append("base"), on_error=print):
            target.Thing().inherited(3)
        target.Thing().inherited(3)
    assert calls == ["sub", "base", "sub"]


def test_hooked_function_keeps_its_name_and_its_cache_methods(target):
    """Programs call `cache_clear` of functions of torch that have an `lru_cache`."""
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
def test_hooking_an_attribute_that_cannot_be_wrapped_raises(target, path, why, how):
    """A hook that is silently never called is worse than none."""
    before = contents(target)
    options = {"on_error": print} if how is subscribe else {}
    with pytest.raises(UnsupportedTorch, match=why):
        how(HookPoint("test", path, purpose="testing"), lambda *args: print, **options)
    assert not installed()
    assert contents(target) == before


def test_hooking_with_a_wrapper_that_is_not_callable_raises(target):
    before = contents(target)
    with pytest.raises(UsageError, match="returned None"):
        wrap(point("function"), lambda original: None)
    with pytest.raises(UsageError, match="not callable"):
        replace(point("function"), 3)
    with pytest.raises(ZeroDivisionError):
        wrap(point("function"), lambda original: 1 / 0)
    assert not installed()
    assert contents(target) == before


def test_hooking_an_attribute_that_torch_lacks_raises():
    with pytest.raises(UnsupportedTorch, match="torch has no math:gone"):
        subscribe(HookPoint("test", "math:gone", purpose="seeing"), lambda a, k: None, on_error=print)


@pytest.mark.parametrize("path", KINDS)
def test_replacements_of_an_attribute_nest_and_can_be_removed_in_any_order(target, path):
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


def test_replace_does_not_modify_the_replacement_function(target):
    def fn(x):
        return None

    before = dict(vars(fn))
    with replace(point("function"), fn):
        assert target.function(3) is None
    assert vars(fn) == before


@pytest.mark.parametrize("kind", ["subscribe", "wrap"])
def test_hook_handle_is_a_context_manager_and_can_be_removed_twice(target, kind):
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
def test_installing_and_removing_hooks_from_threads_keeps_results_correct(target, path):
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


def test_hook_subscribers_run_in_order_and_finish_in_reverse(target):
    order = []

    def named(name):
        def before(args, kwargs):
            order.append(name)
            return lambda result, raised: order.append((name, result))

        return before

    with subscribe(point("function"), named("a"), on_error=print), subscribe(point("function"), named("b"), on_error=print):
        target.function(3)
    assert order == ["a", "b", ("b", 6), ("a", 6)]


def test_exception_in_a_hook_subscriber_is_reported_and_the_call_continues(target):
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


def test_exception_of_a_hooked_function_reaches_subscriber_and_caller(target):
    seen = []
    with (
        subscribe(point("function"), lambda a, k: lambda result, raised: seen.append(raised), on_error=print),
        pytest.raises(ValueError, match="-1") as raised,
    ):
        target.function(-1)
    assert seen == [raised.value]


def test_hook_subscriber_removed_during_a_call_still_receives_the_result(target):
    ended = []

    def before(args, kwargs):
        handle.remove()
        return lambda result, raised: ended.append(result)

    handle = subscribe(point("function"), before, on_error=print)
    assert target.function(3) == 6
    assert ended == [6]
    assert not installed()


def test_hook_subscription_can_be_limited_to_the_current_thread(target):
    calls = []
    with subscribe(point("function"), lambda a, k: calls.append(a), on_error=print, this_thread_only=True):
        thread = threading.Thread(target=target.function, args=(1,))
        thread.start()
        thread.join()
        target.function(2)
    assert calls == [(2,)]


@pytest.mark.parametrize("wrappers", [0, 1, 2])
@pytest.mark.parametrize("inherited", [False, True])
def test_skip_argument_of_a_hooked_function_counts_the_frames_that_dynx_adds(target, wrappers, inherited):
    """torch finds the user line of a guard a given number of frames above its own function."""

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
