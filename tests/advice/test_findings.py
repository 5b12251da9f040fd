"""Findings that join several records: recompiles of a split function, a recompile limit, a failed compilation."""

from __future__ import annotations

import inspect

import pytest
import torch

import dynx

X = torch.ones(4)


def findings_after(compiled, *calls):
    """Call a compiled function with each tuple of arguments, and return the findings by rule."""
    with dynx.watch() as w:
        for arguments in calls:
            compiled(*arguments)
    return {rule: [finding for finding in w.findings if finding.rule == rule] for rule in {f.rule for f in w.findings}}


def line_of(function, text):
    """Return the number of the only line of a function in this file that contains a text."""
    lines, first = inspect.getsourcelines(function)
    (index,) = (index for index, line in enumerate(lines) if text in line)
    return first + index


def in_three_parts(x):
    y = x * 2
    torch._dynamo.graph_break()  # first break
    y = y * 3
    torch._dynamo.graph_break()  # second break
    return y + x


def test_one_change_that_recompiles_all_parts_of_a_split_function_is_one_finding_that_names_the_breaks():
    """Three findings would be three tasks; there is one thing to do."""
    findings = findings_after(torch.compile(in_three_parts, backend="eager"), (X,), (torch.ones(8),))
    (finding,) = findings["DX102"]
    first, second = line_of(in_three_parts, "# first break"), line_of(in_three_parts, "# second break")
    assert finding.title == (
        f"x.size(0) 4, then 8; recompiles 3 parts of the function, split by the graph breaks at lines {first} and {second}"
    )
    assert finding.location.line == line_of(in_three_parts, "y = x * 2")
    assert finding.count == 3
    assert sum("size mismatch" in line for line in finding.evidence) == 3
    assert finding.advice == "maybe_mark_dynamic(x, 0) before the call; or pad to one size"


def by_two_modes(x, first, second):
    y = x * 2 if first == "a" else x  # reads first
    torch._dynamo.graph_break()
    return y + 1 if second == "a" else y - 1  # reads second


def test_changes_of_two_values_in_parts_of_a_split_function_are_two_findings():
    compiled = torch.compile(by_two_modes, backend="eager")
    findings = findings_after(compiled, (X, "a", "a"), (X, "b", "a"), (X, "b", "b"))
    assert {(finding.location.line, finding.title) for finding in findings["DX114"]} == {
        (line_of(by_two_modes, "# reads first"), "first 'a', then 'b'"),
        (line_of(by_two_modes, "# reads second"), "second 'a', then 'b'"),
    }


def by_mode(x, mode):
    return x * 2 if mode == "double" else x + 1


def test_recompile_limit_with_fullgraph_is_one_finding_that_names_the_line_of_the_call():
    """torch raises there: the function neither gives up nor runs eagerly."""
    compiled = torch.compile(by_mode, backend="eager", fullgraph=True)

    def call_all():
        for index in range(12):
            compiled(X, f"mode {index}")

    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        call_all()
    (finding,) = w.findings
    assert (finding.rule, finding.location.line) == ("DX301", line_of(by_mode, "return"))
    assert finding.title == "fullgraph=True fails after 8 compiles (DX114): mode 'mode 7', now 'mode 8'"
    assert finding.called_from.line == line_of(call_all, "compiled(")
    assert not [text for text in (finding.title, finding.advice, *finding.evidence) if "eager" in text]


def product(y, weight):
    return y @ weight


def project(x, weight):
    y = x * 2
    return product(y, weight)


def test_failed_compilation_is_found_at_the_line_that_failed_and_names_the_line_of_the_call():
    """torch's traceback has both, among its own lines; the line of `def` says nothing."""
    compiled = torch.compile(project, backend="eager")

    def call(size):
        compiled(torch.ones(size), torch.ones(5, 5))

    with dynx.watch() as w:
        for size in (3, 4):
            with pytest.raises(torch._dynamo.exc.TorchRuntimeError):
                call(size)
    (finding,) = w.findings
    assert (finding.rule, finding.count) == ("DX302", 2)
    assert finding.location.line == line_of(product, "return")
    assert finding.called_from.line == line_of(call, "compiled(")
    assert finding.title == "TorchRuntimeError: an operator does not accept these tensors: return y @ weight"


def failing_backend(graph, inputs):
    raise ValueError("unsupported")


def test_failure_of_a_backend_names_the_exception_that_it_raised():
    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(project, backend=failing_backend)(X, torch.ones(4, 4))
    (finding,) = w.findings
    assert finding.rule == "DX302"
    assert finding.title == "BackendCompilerFailed: the backend raised an exception: ValueError: unsupported"
    assert finding.advice.startswith('try backend="aot_eager", then "eager"')


def test_advice_on_a_failure_of_a_backend_does_not_name_that_backend(monkeypatch):
    def fails(*args, **kwargs):
        raise ValueError("unsupported")

    monkeypatch.setattr("torch._dynamo.backends.debugging.aot_autograd", lambda **options: fails)
    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.BackendCompilerFailed):
        torch.compile(project, backend="aot_eager")(X, torch.ones(4, 4))
    assert w.findings[0].advice == 'try backend="eager": if it works, report the error to PyTorch'


def changes_class(x, options):
    options.__class__ = dict
    return x * 2


class Options:
    pass


def test_graph_break_without_a_rule_under_fullgraph_is_a_failed_compilation():
    """A graph break that a rule explains has the finding of that rule instead."""
    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(changes_class, backend="eager", fullgraph=True)(X, Options())
    (finding,) = w.findings
    assert (finding.rule, finding.location.line) == ("DX302", line_of(changes_class, "__class__"))
    assert finding.title.startswith("fullgraph=True fails: ")
    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(in_three_parts, backend="eager", fullgraph=True)(X)
    assert [finding.rule for finding in w.findings] == ["DX216"]


def counts_of_runs(x):
    ends = torch.cumsum(torch.unique_consecutive(x, return_counts=True)[1], 0)
    return [x[:end] for end in ends.tolist()]


def test_values_of_a_tensor_whose_size_depends_on_data_are_not_read_with_the_setting_that_captures_such_sizes():
    """With the setting torch cannot trace the line that reads them; since 2.13 it raises even without fullgraph=True."""
    with dynx.watch() as w:
        torch.compile(counts_of_runs, backend="eager")(X)
    advice = {finding.rule: finding.advice for finding in w.findings}
    assert advice["DX209"] == "do this outside the compiled function, with the line of DX202, which reads the values"
    torch._dynamo.reset()
    capture = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    with capture, pytest.raises(Exception, match=r"data-dependent|tolist"):
        torch.compile(counts_of_runs, backend="eager", fullgraph=True)(X)
