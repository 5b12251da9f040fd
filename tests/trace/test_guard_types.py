"""Every type of guard that torch has is covered by a flip, or cannot fail by what a program does."""

from __future__ import annotations

import functools

import pytest
from flips import FLIPS
from torch._dynamo.guards import GuardBuilder
from torch._guards import GuardsSet

FLIPPED_BY = {
    "AUTOGRAD_SAVED_TENSORS_HOOKS": "hooks_of_saved_tensors",
    "BOOL_MATCH": "a bool and an int",
    "BUILTIN_MATCH": "a builtin function",
    "CLASS_MATCH": "a class",
    "CLOSURE_MATCH": "a bound method",
    "CONSTANT_MATCH": "a bool and None",
    "CONSTANT_SUBCLASS_MATCH": "an int subclass",
    "COUNT_ITERATOR_MATCH": "a_count_iterator",
    "COW_TENSOR_MATCH": "a copy-on-write tensor",
    "DICT_CONTAINS": "a new key",
    "DICT_KEYS_MATCH": "the order of keys",
    "DICT_NOT_CONTAINS": "a new key",
    "DISPATCH_KEY_SET_MATCH": "a dispatch key set",
    "DUAL_LEVEL": "a_level_of_forward_ad",
    "DUPLICATE_INPUT": "one tensor twice",
    "EMPTY_NN_MODULE_HOOKS_DICT": "a_hook_of_a_module",
    "EQUALS_MATCH": "an int and a float",
    "FUNCTORCH_STACK_MATCH": "a_transform_of_functorch",
    "GLOBAL_STATE": "grad mode",
    "HASATTR": "an_attribute_that_hasattr_looks_for",
    "ID_MATCH": "an enum",
    "LIST_REVERSEITERATOR_LEN": "a_reversed_list",
    "MAPPING_KEYS_CHECK": "keys of a mapping proxy",
    "MODULE_MATCH": "a Python module",
    "NONE_MATCH": "None and an int",
    "NOT_PRESENT_IN_GENERIC_DICT": "an attribute that hides that of the class",
    "RANGE_ITERATOR_MATCH": "a_range_iterator",
    "SEQUENCE_LENGTH": "a longer list",
    "SET_CONTAINS": "a member of a set",
    "SET_NOT_CONTAINS": "a member of a set",
    "SHAPE_ENV": "a bound of a size",
    "TENSOR_MATCH": "a size",
    "TENSOR_SUBCLASS_METADATA_MATCH": "metadata of a tensor subclass",
    "TORCH_FUNCTION_STATE": "a function mode",
    "TUPLE_ITERATOR_LEN": "a_tuple_iterator",
    "TYPE_MATCH": "the class of an object",
}

NOT_FLIPPED = {
    "CURRENT_STREAM_MATCH": "needs streams of a GPU; its text is in test_guard_text",
    "DEFAULT_DEVICE": "torch.device and set_default_device also change the stack of function modes, which fails first",
    "DETERMINISTIC_ALGORITHMS": "a part of GLOBAL_STATE",
    "DICT_VERSION": "torch requests it for its registry of pytree nodes only",
    "DTENSOR_SPEC_MATCH": "needs a process group; its text is in test_guard_text",
    "FAKE_SCRIPT_TYPE_MATCH": "for opaque types, which are registered with private functions of torch",
    "FSDP_TRAINING_STATE": "a part of GLOBAL_STATE",
    "FUNCTION_MATCH": "for callables of torch that are no functions, builtins or classes; worded as BUILTIN_MATCH",
    "GRAD_MODE": "a part of GLOBAL_STATE",
    "NN_MODULE": "for modules that are not inlined, which torch no longer makes by default",
    "NOT_NONE_MATCH": "for gradients of graph inputs in compiled autograd",
    "OPAQUE_OBJ_GUARD_FN_MATCH": "for opaque types, which are registered with private functions of torch",
    "WEAKREF_ALIVE": "for objects that torch keeps between graphs: their weak references cannot be reached",
}


def guard_types():
    return {name for name in vars(GuardBuilder) if name.isupper()}


def test_every_guard_type_of_the_installed_torch_has_a_flip_or_a_reason_why_not():
    assert guard_types() <= FLIPPED_BY.keys() | NOT_FLIPPED.keys()
    assert not FLIPPED_BY.keys() & NOT_FLIPPED.keys()


@pytest.fixture
def requested(monkeypatch):
    """The types of the guards that are requested, and of those that are built; the set fills while the test runs."""
    types = set()

    def record(name, function):
        @functools.wraps(function)
        def recorded(*args, **kwargs):
            types.add(name)
            return function(*args, **kwargs)

        return recorded

    for name in guard_types():
        monkeypatch.setattr(GuardBuilder, name, record(name, getattr(GuardBuilder, name)))
    add = GuardsSet.add

    def added(self, guard, **options):
        types.add(guard.create_fn_name())
        add(self, guard, **options)

    monkeypatch.setattr(GuardsSet, "add", added)
    return types


@pytest.mark.parametrize("name", sorted(FLIPPED_BY.keys() & guard_types()))
def test_flip_requests_a_guard_of_the_type(name, requested):
    """A flip that fails another guard shows nothing of this type."""
    flip = FLIPS[FLIPPED_BY[name]]()
    flip.first()
    flip.second()
    assert name in requested
