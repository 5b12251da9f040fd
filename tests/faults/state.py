"""Faults in `dynx/cudagraphs/_state/`, and the test files that have to fail for each."""

from __future__ import annotations

from fault import Fault

FAULTS = (
    Fault(
        "modules in attributes of ordinary objects are not found",
        "_state/search.py",
        "self._visit_names(value, attributes, self.names)",
        "pass",
        "test_find_modules.py",
    ),
    Fault(
        "names bound to modules are not part of a recording's key",
        "_state/module_state.py",
        "bindings=used.bindings.key(),",
        "bindings=(),",
        "test_find_modules.py",
    ),
    Fault(
        "attributes assigned during capture are not restored",
        "_state/module_state.py",
        "for now, then in copies if names else ():",
        "for now, then in ():",
        "test_patched_params.py",
    ),
    Fault(
        "changes of optimizer state are not detected",
        "_state/training_state.py",
        "and is_unchanged()",
        "",
        "test_train_step_state.py",
    ),
    Fault(
        "changes of requires_grad are not detected",
        "_state/training_state.py",
        "and list(map(needs_gradient, params)) == need",
        "",
        "test_train_step_state.py",
    ),
    Fault(
        "new parameter addresses are not detected",
        "_state/training_state.py",
        "_are_at(params, addresses, indices)\n",
        "True\n",
        "test_train_step.py",
    ),
    Fault(
        "module changes are not detected",
        "_state/module_state.py",
        "is_unchanged()\n                and ",
        "",
        "test_fast_path.py",
    ),
    Fault(
        "tensors that the function names are not checked",
        "_state/search.py",
        "return is_tensor(value) or kind",
        "return kind",
        "test_replaced_tensors.py",
    ),
    Fault(
        "a tensor that a closure variable names may be given other data",
        "_state/module_state.py",
        "*attributes, *self.bindings.tensors()]",
        "*attributes]",
        "test_replaced_tensors.py",
    ),
    Fault(
        "the class of a module may be replaced",
        "_state/module_state.py",
        "and list(map(type, modules)) == kinds",
        "",
        "test_changed_state.py",
    ),
    Fault(
        "methods and attributes of classes are not checked",
        "_state/module_state.py",
        "*class_dicts(used.modules), *hooks_of_all_modules()])",
        "*hooks_of_all_modules()])",
        "test_changed_state.py",
    ),
    Fault(
        "hooks of all modules are not checked",
        "_state/module_state.py",
        "*class_dicts(used.modules), *hooks_of_all_modules()])",
        "*class_dicts(used.modules)])",
        "test_changed_state.py",
    ),
    Fault(
        "the default dtype is not part of the state",
        "_state/process_state.py",
        "torch.get_default_dtype(),",
        "",
        "test_changed_state.py",
    ),
    Fault(
        "contents of attributes of modules are not searched",
        "_state/search.py",
        "        self._visit_contents()\n",
        "",
        "test_changed_state.py",
    ),
    Fault(
        "numbers that the function names are not checked",
        "_state/search.py",
        "or kind in PLAIN or",
        "or",
        "test_changed_state.py",
    ),
    Fault(
        "numbers that a training step changes are taken for its own",
        "_state/module_state.py",
        "return not (type(value) in PLAIN or",
        "return not (",
        "test_changed_state.py",
    ),
    Fault(
        "tensors that a training step assigns are taken for the state",
        "_state/module_state.py",
        "self._skipped |= {change.place for change in changed if change.is_object}",
        "pass",
        "test_train_step_state.py",
    ),
    Fault(
        "requires_grad is not checked where the code reads it",
        "_state/module_state.py",
        'return used.bindings.reads_attribute("requires_grad")',
        "return False",
        "test_changed_state.py",
    ),
)
