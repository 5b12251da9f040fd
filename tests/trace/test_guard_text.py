"""The parser of torch's messages about failed guards, on messages recorded from 2.11, 2.13 and 2.15."""

from __future__ import annotations

import pytest

from dynx._trace.guards.text import parse_entry, parse_error, parse_guard

RECORDED = [
    ("tensor 'x' size mismatch at index 0. expected 3, actual 5", "size", "x.size()[0]", "3", "5"),
    ("tensor 'x' stride mismatch at index 1. expected 4, actual 1", "stride", "x.stride()[1]", "4", "1"),
    ("tensor 'x' rank mismatch. expected 2, actual 1", "rank", "x", "2", "1"),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", "dtype", "x", "Float", "Double"),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=0", "requires_grad", "x", "False", "True"),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=1", "requires_grad", "x", "True", "False"),
    (
        "tensor 'args[0]' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), actual DispatchKeySet(CPU)",
        "tensor",
        "args[0]",
        "DispatchKeySet(CPU, AutogradCPU)",
        "DispatchKeySet(CPU)",
    ),
    # torch prints the byte of a device index, of which `\t`, index 9, is whitespace at the end of the message
    (
        "tensor 'x' Tensor device index mismatch. Expected device index to be \x00, actual \x01",
        "device",
        "x",
        "index 0",
        "index 1",
    ),
    (
        "tensor 'x' Tensor device index mismatch. Expected device index to be 0, actual 1",
        "device",
        "x",
        "index 0",
        "index 1",
    ),
    (
        "tensor 'x' Tensor device index mismatch. Expected device index to be \x00, actual \t",
        "device",
        "x",
        "index 0",
        None,
    ),
    ("GLOBAL_STATE changed: grad_mode ", "global_state", "grad_mode", None, None),
    ("GLOBAL_STATE changed: grad_mode default_dtype ", "global_state", "grad_mode default_dtype", None, None),
    ("BACKEND_MATCH failure: torch.compile detected different backend callables. If this", "backend", "backend", None, None),
    ("len(l) == 1", "length", "l", "1", None),
    ("len(d) != 1", "length", "d", "1", None),  # the C++ message states the failure, with the expected length
    ("2 <= n and n <= 9", "shape", "n", "2 <= n and n <= 9", None),
    ("n <= 9", "shape", "n", "n <= 9", None),
    ("(step % 10) != 0", "shape", "step", "(step % 10) != 0", None),
    ("not set.__contains__(s, 1)", "keys", "s", "no 1", "1"),
    ("expected type of 'x' to be a tensor type, ' but found <class 'int'>", "type", "x", "a tensor type", "<class 'int'>"),
    ("expected type of 'x' to be a tensor type, but found <class 'int'>", "type", "x", "a tensor type", "<class 'int'>"),
    ("___check_torch_function_mode_stack()", "global_state", "torch_function_mode_stack", None, None),
    ("getattr failed on source o", "attribute", "o", "present", "absent"),
    ("s == ___as_tensor(s).item()", "value", "s", None, None),
    ("x is True", "value", "x", "True", None),
    ("___check_obj_id(m, 14), type=<class 'my_functional.Mode'>", "object", "m", "<class 'my_functional.Mode'>", None),
    (
        "tensor 'w' size mismatch at index 1. expected 3, actual 4. Guard failed on a parameter, consider using",
        "size",
        "w.size()[1]",
        "3",
        "4",
    ),
    # the hint follows the only value that torch prints
    (
        "tensor 'w' requires_grad mismatch. expected requires_grad=1. Guard failed on a parameter, consider",
        "requires_grad",
        "w",
        "True",
        "False",
    ),
    ("not history", "length", "history", "0", None),
    ("not dict(type(f).__dict__)['g'].data", "length", "dict(type(f).__dict__)['g'].data", "0", None),
    ("0.97 ** torch.sym_float(1 + n) <= 5.0", "shape", "n", "0.97 ** torch.sym_float(1 + n) <= 5.0", None),
    ("list(dict.keys(d))[0] == 'a'", "keys", "d", "'a'", None),
    ("not ___dict_contains('mask', batch)", "keys", "batch", "no 'mask'", "'mask'"),
    ("not ___dict_contains('n', self.__dict__)", "attribute", "self.n", "absent", "present"),
    ("self.step == 7", "value", "self.step", "7", None),
    ("n == 'a  # no comment'", "value", "n", "'a  # no comment'", None),
    ("G['DEBUG'] == False", "value", "G['DEBUG']", "False", None),
    ("mask is None", "none", "mask", "None", None),
    ("mask is not None", "none", "mask", "not None", None),
    ("___check_obj_id(fn.__code__, 140417709253824), type=<class 'code'>", "function", "fn", None, None),
    ("___check_obj_id(mode, 14041), type=<class '__main__.Mode'>", "object", "mode", "<class '__main__.Mode'>", None),
    ("___check_obj_id(mode, 14041), type=<Mode.QUIET: 1>", "object", "mode", "<Mode.QUIET: 1>", None),
    ("___check_type_id(x, 94), type=<class 'a.B'>", "type", "x", "<class 'a.B'>", None),
    ('Duplicate tensors found: ["a", "b"]', "alias", '["a", "b"]', "different tensors", "the same tensor"),
    ("TYPE_MISMATCH(layers._modules)", "type", "layers._modules", None, None),
    ("___check_metadata_139982394858432_c0/0", "other", "metadata of a tensor subclass", None, None),
    ("__dtensor_spec_139982394858432", "other", "mesh and placements of a DTensor", None, None),
    ("___cow_tensor_matches(x, True)", "tensor", "x", "copy-on-write", "not copy-on-write"),
    ("s != ___get_current_stream(torch.device('cuda'))", "value", "s", "not the current stream", "the current stream"),
    ("___as_tensor(n).item() < 10.0", "shape", "n", "n < 10.0", None),
    ("___check_obj_id(n, 14041), type=<built-in function max>", "function", "n", None, None),
    ("___list_reverseiterator_len(n) == 2", "length", "n", "2", None),
    ("___tuple_iterator_len(n) == 2", "length", "n", "2", None),
    ("___normalize_range_iter(n) == (0, 3, 1)", "value", "n", "iterator of range(0, 3)", None),
    ("___normalize_range_iter(n) == (0, 3, 2)", "value", "n", "iterator of range(0, 3, 2)", None),
    ("___normalize_count_iter(n) == (1, 2)", "value", "n", "count(1, 2)", None),
    ("int(n) == 2", "value", "n", "2", None),
    ("list(n.keys()) == ['a', 'b']", "keys", "n", "'a', 'b'", None),
    ("n.raw_repr() == DispatchKeySet(CPU).raw_repr()", "value", "n", "DispatchKeySet(CPU)", None),
    (
        "torch._functorch.pyfunctorch.compare_functorch_state([('Vmap', 1, 'error'), ('Grad', 2, True)])",
        "global_state",
        "functorch_stack",
        "functorch_stack Vmap 1 error, Grad 2 True",
        None,
    ),
    ("torch.autograd.forward_ad._current_level == -1", "global_state", "forward_ad_level", "forward_ad_level -1", None),
    ("x is y", "alias", "x", "is y", None),
    (
        "_has_dynamo_dim_marking is present on runtime tensor but was absent at compile time",
        "other",
        "mark_dynamic, mark_static or mark_unbacked of a tensor",
        "absent",
        "present",
    ),
    ("6 <= x.size()[0]", "shape", "x.size()[0]", "6 <= x.size()[0]", None),
    ("2 <= x.size()[0] <= 5", "shape", "x.size()[0]", "2 <= x.size()[0] <= 5", None),
    ("not hasattr(self, 'cache')", "attribute", "self.cache", "absent", "present"),
    ("a message of a future torch", "other", "a message of a future torch", None, None),
]


@pytest.mark.parametrize(("text", "kind", "source", "expected", "got"), RECORDED, ids=[row[0][:40] for row in RECORDED])
def test_guard_messages_recorded_from_torch_are_parsed(text, kind, source, expected, got):
    guard = parse_guard(text)
    assert (guard.kind, guard.source, guard.expected, guard.got) == (kind, source, expected, got)


def test_guard_message_with_the_bound_before_the_size_keeps_the_bound_as_expected():
    assert parse_guard("6 <= x.size()[0]").expected == "6 <= x.size()[0]"


def test_guard_line_is_parsed_from_the_user_stack_trace():
    text = (
        "0/1: self.step == 0                  # self.step += 1  # examples/mistakes.py:16 in forward (HINT: ...)\n"
        "User stack trace:\n"
        '  File "/home/me/train.py", line 9, in main\n    model(x)\n'
        '  File "/home/me/examples/mistakes.py", line 16, in forward\n    self.step += 1'
    )
    entry = parse_entry(text)
    assert entry.against == "0/1"
    assert entry.guard.line == ("/home/me/examples/mistakes.py", 16, "forward")
    assert entry.guard.text == "self.step == 0"


def test_guard_line_is_parsed_from_the_trailing_comment_before_torch_2_13():
    guard = parse_guard("self.step == 0                  # self.step += 1  # examples/mistakes.py:16 in forward")
    assert guard.line == ("examples/mistakes.py", 16, "forward")


def test_compile_id_of_compiled_autograd_is_parsed():
    assert parse_entry("!0/1/2: len(l) == 1").against == "!0/1/2"


def test_message_of_error_on_recompile_is_parsed():
    text = (
        "Recompiling function f in a.py:3\n    triggered by the following guard failure(s):\n"
        "    - 0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4"
    )
    (entry,) = parse_error(text)
    assert (entry.against, entry.guard.kind) == ("0/0", "size")


@pytest.mark.parametrize(
    ("file", "by_backend"),
    [("_functorch/_aot_autograd/aot_autograd_result.py", True), ("_dynamo/output_graph.py", False), ("_inductor/ir.py", True)],
)
def test_a_comment_that_names_a_line_of_torch_is_no_part_of_the_value(file, by_backend):
    """torch writes it behind guards that no line of the program requested."""
    guard = parse_guard(f"self.lr == 0.13333  # ({file}:3375 in check_guards)")
    assert (guard.kind, guard.expected, guard.line, guard.by_backend) == ("value", "0.13333", None, by_backend)
