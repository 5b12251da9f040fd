"""Only `hooks.py` replaces attributes of torch; assignments to objects of torch elsewhere are listed here with a reason."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynx
from dynx._torch.compilation.messages import Messages
from dynx._torch.hooks import installed

ROOT = Path(dynx.__file__).parent
HOOKS = "_torch/hooks.py"

# assignments to attributes of objects that are not dynx's own, by file and attribute: they end with the object
EXCEPTIONS = {
    # one object of one compilation: a class attribute would affect every compilation of the process
    ("_torch/tracing/line_hook.py", "dispatch_table"): "shadows the class's table on one InstructionTranslator",
    ("_torch/unguarded/read.py", "dynx_reads"): "a name of dynx on one OutputGraph",
    ("_torch/unguarded/instructions.py", "dispatch_table"): "shadows the class's table on one InstructionTranslator",
    ("_torch/tracing/line_hook.py", "instruction_pointer"): "moves one InstructionTranslator",
    ("_torch/tracing/line_hook.py", "positions"): "of an instruction that dynx creates",
    ("_torch/tracing/translator.py", "call_user_compiler"): "shadows the method on one OutputGraph",
    ("_torch/tracing/shape_facts.py", "args"): "of an assertion node in one graph",
    ("_torch/tracing/translator.py", "name"): "of a copy of a stack entry",
    ("_torch/shapes/code_state.py", "setattr"): "of one entry of torch's profile",
    ("_torch/trace_log/line_timer.py", "setattr"): "a mark with a name of dynx on one OutputGraph",
    ("_torch/trace_log/log.py", "setattr"): "a mark with a name of dynx on one OutputGraph and InstructionTranslator",
    ("_torch/side_effects/log.py", "setattr"): "a mark with a name of dynx on one OutputGraph",
    # restored at the end of a trace that holds the lock of compilations
    ("_torch/retracing/retrace.py", "_unique_id_counter"): "numbers in names of what-if traces",
    ("_torch/retracing/retrace.py", "_compile_id_counter"): "numbers in names of what-if traces",
    ("_torch/retracing/retrace.py", "global_scope"): "of the OutputGraph of a what-if trace",
    ("_torch/retracing/retrace.py", "initial_global_state"): "the state that the guards of a what-if trace require",
    ("_torch/shapes/profile_copies.py", "_CODE_STATE"): "the profile that a what-if trace uses",
    ("_torch/shapes/profile_copies.py", "automatic_dynamic"): "of a copied entry of torch's profile",
    ("_torch/retracing/tensors.py", "setattr"): "attributes of a tensor that dynx creates",
    # one compiled function
    ("_torch/compilation/recompile_limit.py", "_inner_convert"): "of the ConvertFrame of one compiled function",
    ("_torch/compilation/isolation.py", "_isolate_recompiles_id"): "of the context of one compiled function",
    ("_torch/compilation/isolation.py", "dynx_recompile_limit"): "a mark with a name of dynx on the same context",
    ("_torch/compilation/isolation.py", "__kwdefaults__"): "of a copy of the user's function",
    ("_torch/compilation/wrappers.py", "_torchdynamo_orig_callable"): "of an OptimizedModule that dynx creates",
    ("_torch/compilation/wrappers.py", "_torchdynamo_wrapper_id"): "of a wrapper that dynx creates",
    ("_torch/compilation/wrappers.py", "get_compiler_config"): "of an OptimizedModule that dynx creates",
    ("_torch/compilation/wrappers.py", "setattr"): "of a wrapper that dynx creates",
    ("_torch/compilation/wrappers.py", "__call__"): "of a class that dynx.compile decorates, as torch.compile does",
    (
        "_torch/compilation/wrappers.py",
        "_call_impl",
    ): "of a class that dynx.compile decorates, as torch.compile does",
    # objects that dynx creates, and the user's tensors
    ("_torch/autograd/aot.py", "_boxed_call"): "marks a function of dynx",
    ("_torch/autograd/engine.py", "data"): "swaps the data of a leaf for a moment",
    ("_torch/ops/memory_pools.py", "atexit"): "of a weakref.finalize",
    ("_torch/tracing/callbacks.py", "__defaults__"): "of a function that dynx creates",
    ("_torch/tracing/callbacks.py", "__kwdefaults__"): "of a function that dynx creates",
    ("_torch/tracing/callbacks.py", "cell_contents"): "of a closure cell that dynx creates",
    ("_torch/tracing/raising.py", "__name__"): "of a class that dynx creates",
    ("_torch/tracing/raising.py", "__qualname__"): "of a class that dynx creates",
    ("_torch/tracing/raising.py", "__module__"): "of a class that dynx creates",
    ("_torch/trace_log/steps.py", "_dynx_stack"): "a mark with a name of dynx on one InstructionTranslator",
    ("comptime/_bytecode_probe.py", "vars"): "a name in builtins that injected bytecode looks up; removed with the probe",
}


def assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, int]]:
    """Yield what the code assigns to or deletes, and calls of setattr and delattr."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            yield node, node.lineno
        targets = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = [node.target]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            targets = [node.optional_vars]
        for target in targets:
            for inner in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                yield inner, target.lineno


def own_attributes() -> frozenset[str]:
    """Return the attributes that classes of dynx declare: assigning to them concerns dynx alone."""
    names = set()
    for file in ROOT.rglob("*.py"):
        for cls in ast.walk(ast.parse(file.read_text())):
            if not isinstance(cls, ast.ClassDef):
                continue
            names |= {
                node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
            }
            for target, _ in assignments(cls):
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                    names.add(target.attr)
    return frozenset(names)


def imported_from_torch(tree: ast.AST) -> frozenset[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name.startswith("torch")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names |= {alias.asname or alias.name for alias in node.names}
    return frozenset(names)


def root_of(expression: ast.expr) -> str:
    while isinstance(expression, (ast.Attribute, ast.Subscript, ast.Call)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def replacements() -> list[tuple[str, str, int]]:
    """Return the assignments to attributes that are not dynx's own: file, attribute and line.

    In the seam objects of torch are everywhere; elsewhere they are only reached through an import of torch.
    """
    found = []
    own = own_attributes()
    for path in sorted(ROOT.rglob("*.py")):
        file, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
        torch_names = imported_from_torch(tree)
        for target, line in assignments(tree):
            root = root_of(target.args[0] if isinstance(target, ast.Call) else target)
            if isinstance(target, ast.Call):
                kind = target.func.id
                is_foreign = root != "self" and (file.startswith("_torch/") or root in torch_names)
            elif isinstance(target, ast.Subscript):  # vars(module)["name"] = ..., module.__dict__["name"] = ...
                kind = "vars" if "__dict__" in ast.unparse(target.value) or root == "vars" else ""
                is_foreign = bool(kind)
            else:
                kind = target.attr if isinstance(target, ast.Attribute) else ""
                in_seam = file.startswith("_torch/") and root != "self" and kind not in own
                is_foreign = bool(kind) and (root in torch_names or in_seam)
            if is_foreign and file != HOOKS:
                found.append((file, kind, line))
    return found


@pytest.mark.slow
def test_only_the_hooks_module_replaces_attributes_of_torch():
    """If several modules replace one attribute, it is not restored in the right order."""
    unlisted = [f"{file}:{line} {kind}" for file, kind, line in replacements() if (file, kind) not in EXCEPTIONS]
    assert unlisted == [], "use dynx._torch.hooks, or add the attribute and the reason above"


@pytest.mark.slow
def test_every_listed_assignment_to_a_foreign_attribute_exists():
    used = {(file, kind) for file, kind, _ in replacements()}
    own = own_attributes()
    assert [key for key in EXCEPTIONS if key not in used and key[1] not in own] == []


def test_catch_warnings_cannot_put_back_a_showwarning_hook_that_dynx_has_removed():
    """`warnings.catch_warnings` restores the function that it found, even if dynx has removed that hook since."""
    before = warnings.showwarning
    heard = []
    messages = Messages(lambda text, origin: heard.append(text))
    assert installed() == ("warnings:showwarning",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messages.remove()
        assert warnings.showwarning is before
    assert not installed()
    Messages(lambda text, origin: None).remove()
    assert warnings.showwarning is before
