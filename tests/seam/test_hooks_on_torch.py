"""`dynx._torch.hooks` on attributes of torch itself: a static method and an inherited one, hooked and restored exactly."""

from __future__ import annotations

import pytest
import torch

from dynx._torch.hooks import HookPoint, installed, owner_of, subscribe, wrap

# a static method, and a method that the class inherits
REAL = {
    "torch._dynamo.pgo:CodeId.make": "static",
    "torch._dynamo.variables.user_defined:UserDefinedSetVariable.call_method": "inherited",
}


class Tags(set):
    """A set that Dynamo traces as a `UserDefinedSetVariable`."""


@pytest.mark.parametrize("path", REAL)
@pytest.mark.parametrize("how", ["subscribe", "wrap"])
def test_static_and_inherited_methods_of_torch_are_hooked_and_restored(path, how):
    """The hook is called during a compilation, and is not in the list of installed hooks after its removal."""
    try:
        owner, name = owner_of(path)
        getattr(owner, name)
    except AttributeError:
        pytest.skip(f"this torch has no {path}")
    before = dict(vars(owner))
    calls = []

    def make(original):
        def wrapper(*args, **kwargs):
            calls.append(args)
            return original(*args, **kwargs)

        return wrapper

    hook_point = HookPoint("test", path)
    handle = (
        wrap(hook_point, make)
        if how == "wrap"
        else subscribe(hook_point, lambda args, kwargs: calls.append(args), on_error=print)
    )
    assert installed() == (path,)

    @torch.compile(backend="eager")
    def fn(x, tags):
        tags.add("b")
        return x + len(tags)

    torch._dynamo.reset()
    fn(torch.ones(3), Tags({"a"}))
    torch._dynamo.reset()
    handle.remove()
    assert calls
    assert not installed()
    assert dict(vars(owner)) == before
    assert all(vars(owner)[key] is value for key, value in before.items())
