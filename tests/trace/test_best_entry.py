"""Of several cache entries, the one that fits the call best says why it recompiles."""

from __future__ import annotations

import torch

import dynx


def loss(x, target):
    boxes = target["boxes"]
    if boxes.shape[0] == 0:
        return x.sum()
    out = x.sum() + boxes.sum()
    if "difficult" in target:
        out = out + target["difficult"].sum()
    return out


def scaled(x, options, factor):
    return x * factor + options["bias"] + options["shift"]


def call(compiled, boxes, *, difficult=False):
    more = {"difficult": torch.ones(boxes)} if difficult else {}
    compiled(torch.ones(8), {"boxes": torch.ones(boxes, 4), **more})


def test_an_entry_for_an_empty_batch_does_not_hide_the_new_key():
    """That entry returned early, and fails because of a size; the entry for other batches lacks only the key."""
    compiled = torch.compile(loss, backend="eager", dynamic=True)
    with dynx.watch() as watch:
        call(compiled, 3)
        call(compiled, 0)
        call(compiled, 5, difficult=True)
    branch, key = watch.recompiles
    assert branch.reasons[0].source == "target['boxes'].size()[0]"
    assert [reason.kind for reason in key.reasons] == ["keys", "size"]
    assert [finding.rule for finding in watch.findings if "difficult" in finding.title] == ["DX104"]


def test_the_entry_with_fewer_failed_guards_decides():
    """Both entries fail at `factor` first: the second one fails there only, the first one also at two other values."""
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    with dynx.watch() as watch:
        compiled(torch.ones(3), {"bias": 1, "shift": 2}, 5)
        compiled(torch.ones(3), {"bias": 3, "shift": 4}, 6)
        compiled(torch.ones(3), {"bias": 3, "shift": 4}, 7)
    assert watch.recompiles[-1].reasons[0].against == "0/1"


def test_the_entries_stay_as_they_are():
    """torch counts failures of guards, and evaluates those first that fail often: reading must not count."""
    compiled = torch.compile(scaled, backend="eager", dynamic=False)

    def entries():
        cached = torch._dynamo.eval_frame._debug_get_cache_entry_list(scaled.__code__)
        return [str(entry.guard_manager) for entry in cached]

    calls = [({"bias": 1, "shift": 2}, 5), ({"bias": 3, "shift": 2}, 5), ({"bias": 3, "shift": 4}, 6)]
    for each in calls:
        compiled(torch.ones(3), *each)
    without = [text.count("fail") for text in entries()]
    torch._dynamo.reset()
    with dynx.watch():
        for each in calls:
            compiled(torch.ones(3), *each)
    assert [text.count("fail") for text in entries()] == without


def test_a_list_may_become_an_object_without_a_length():
    """C++ leaves an exception behind when it compares the length of the object with that of the list."""

    def counted(x, c):
        return x * (len(c) if isinstance(c, list) else 1)

    torch._dynamo.reset()
    compiled = torch.compile(counted, backend="eager")
    with dynx.watch() as watch:
        compiled(torch.ones(2), [1, 2])
        compiled(torch.ones(2), object())
    assert not watch.troubles
    (recompile,) = watch.recompiles
    assert (recompile.reasons[0].source, recompile.reasons[0].kind) == ("c", "type")
