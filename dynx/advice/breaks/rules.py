"""Advice rules DX2xx and DX501: causes of graph breaks, in the user's code and in libraries, and how to avoid them."""

from __future__ import annotations

import re
from collections.abc import Callable

from dynx.advice import libraries
from dynx.advice.breaks.calls import CALL_OUTSIDE, called_in, known_advice
from dynx.advice.rule import BreakRule
from dynx.records.graph_break import GraphBreak

_PRINTS = re.compile(
    r"^(?:print|_?warnings\.warn\w*|logging(?:\.\w+)*|loguru(?:\.\w+)*|builtins\.print|sys\.std(?:out|err)\.\w+)$"
)
# matched against torch's `gb_type` only: explanations of other graph breaks mention mutation too
_MUTATION = re.compile(
    r"^(?:Unsupported Tensor\.(?:resize|set)_|Failed to (?:mutate|set tensor)|setattr\(\) on|.*\b[Mm]utating\b"
    r"|.*STORE_ATTR|missing_mp_ass)"
)
_MUTATED = re.compile(r"in-?place view|item assignment|__(?:set|del)(?:item|attr)__")
_MUTATED_KINDS = ("Unsupported function call (delayed)", "Unsupported method call", "C-implemented special method")


def _is_print(graph_break: GraphBreak) -> bool:
    if graph_break.kind.startswith(_UNTRACED) and re.search(r"\bstd(?:out|err)\.(?:write|flush)\(", graph_break.code):
        return True
    return bool(_PRINTS.match(graph_break.callee or "")) or graph_break.kind.startswith(("logging.Logger", "warnings.warn"))


def _is_item(graph_break: GraphBreak) -> bool:
    reads = graph_break.kind.startswith("Data dependent operator") and "_local_scalar_dense" in graph_break.explanation
    return reads or bool(re.search(r"Tensor\.(?:item|tolist)|\.item\(\)|tolist", f"{graph_break.kind} {graph_break.reason}"))


def _is_mutation(graph_break: GraphBreak) -> bool:
    explained = graph_break.kind.startswith(_MUTATED_KINDS) and _MUTATED.search(graph_break.explanation)
    return bool(_MUTATION.match(graph_break.kind) or explained)


def _is_data_dependent(graph_break: GraphBreak) -> bool:
    kind = graph_break.kind.lower()
    return kind.startswith(("data-dependent", "data dependent")) or "data-dependent expression" in kind


def _is_generator_object(graph_break: GraphBreak) -> bool:
    if graph_break.kind == "Unsupported method call":
        return bool(re.search(r"of class `(?:Generator|RandomState)`", graph_break.explanation))
    if graph_break.kind.startswith(("An opaque object was created", "torch.Generator")):
        return "enerator" in f"{graph_break.code}{graph_break.kind}"
    return graph_break.kind == "Failed to convert args/kwargs to proxy" and "generator" in graph_break.code


def _is_builtin(graph_break: GraphBreak) -> bool:
    text = graph_break.explanation
    return graph_break.kind.startswith(_UNTRACED) or (
        graph_break.kind.startswith("Attempted to call function marked as skipped")
        and bool(re.search(r"builtin `|C/C\+\+", text))
    )


_UNTRACED = (
    "Failed to trace builtin operator",
    "Call to a time function",
    "Unsupported method call",
    "Unsupported function call",
    "call to a callable object with no traceable __call__",
)


def _is_disabled(graph_break: GraphBreak) -> bool:
    return graph_break.kind.startswith(
        (
            "Skip calling `torch.compiler.disable()`",
            "Attempted to call function marked as skipped",
            "Skip inlining `torch.compiler.disable()`",
            "Attempted to inline function marked as skipped",
        )
    )


def _code(graph_break: GraphBreak) -> str:
    return f": {graph_break.code}" if graph_break.code else ""


_LOG_CALL = re.compile(r"(?P<name>[\w.]+\.(?:debug|info|warning\w*|warn|error|exception|critical|fatal|log))\(")


def _name(graph_break: GraphBreak) -> str:
    if graph_break.kind.startswith("logging.Logger") or graph_break.callee == "logging":
        call = _LOG_CALL.search(graph_break.code_of_library or graph_break.code)
        return f"{call['name']}()" if call else "a log call"
    written = called_in(graph_break)
    return written or (f"{graph_break.callee}()" if graph_break.callee else "a function that this line calls")


def _untraced(graph_break: GraphBreak) -> str:
    written, callee = called_in(graph_break), graph_break.callee
    if written is not None or callee is None:
        return written or "this call"
    name = callee.removeprefix("builtins.").removeprefix("_io.")
    return f"{name}()" if name.rpartition(".")[2] in graph_break.code else f"{name}(), which this line calls"


def _advise(text: str) -> Callable[[GraphBreak], str]:
    return lambda graph_break: text.format(name=_name(graph_break), library=graph_break.location.library)


# code that stores a number in a Python object: `losses.append(...)`, `meter.update(...)`, `self.loss = ...`
_STORES = re.compile(
    r"\.(?:append|add|update|extend|insert|log|add_scalar|put|observe|setdefault)\(|^[\w.]+(?:\.\w+|\[[^]]*\])\s*[-+*/]?=(?!=)"
)


def _item_advice(graph_break: GraphBreak) -> str:
    header = re.match(r"(?:async )?(?:for|with)\b.*?\)?:(?= )", graph_break.code)
    used = (header[0] if header else graph_break.code, *graph_break.uses)
    if re.search(r"\brandom\.", graph_break.code):
        return known_advice(graph_break) or CALL_OUTSIDE
    if any(map(_STORES.search, used)):  # the number would be guarded, so that each new one recompiles
        return "store the detached tensor, or return it, and read its value outside the compiled function"
    if any(re.search(r"\brange\(", line) for line in used):  # the loop would be unrolled for each value
        return "loop outside the compiled function, or a fixed number of times with a mask"
    branch = next((line for line in used if re.match(r"(?:el)?if\b|while\b|assert\b", line)), None)
    if branch is not None:  # a captured number would break the graph at the branch
        return _branch_advice(branch)
    if re.search(r"\bsplit\(.*\.tolist\(\)", graph_break.code):
        return (
            "mask or pad instead of splitting by lengths, or use tensor operations such as segment_reduce; "
            "or config.capture_scalar_outputs = True"
        )
    if ".tolist()" in graph_break.code:
        return "keep it a tensor, or read the values outside the compiled function"
    if not _CONVERTS.search(graph_break.code) and re.search(r"[\w)\]]\[", graph_break.code):
        return "index a tensor, not a Python list: torch.tensor(list)[index.view(1)]; or choose outside the compiled function"
    if re.search(r"\bf['\"]|\bstr\(|\.format\(", graph_break.code):
        return "format the text outside the compiled function: it needs the tensor's value"
    return "keep it a tensor; or config.capture_scalar_outputs = True"


_CONVERTS = re.compile(r"\.item\(|\b(?:int|float|bool|complex)\(")
_REACTS = re.compile(r":\s*(?:raise\b|assert\b|print\(|warnings?\.|log\w*\.|return\s*$|break\b|continue\b)")


def _branch_advice(code: str) -> str:
    if _REACTS.search(code):  # the branch computes nothing that torch.where could select
        return "return the value, and check it outside the compiled function, after the call"
    return "use torch.where or torch.cond, or branch outside the compiled function"


def _context_advice(graph_break: GraphBreak) -> str:
    if not re.match(r"(?:async )?with\b", graph_break.code):  # it is entered inside a call on this line
        return known_advice(graph_break) or "call it outside the compiled function"
    if re.search(r"`\w*[Ll]ock`", graph_break.explanation):
        return "take the lock around the call, outside the compiled function"
    return "enter it around the call, outside the compiled function"


def _mutation_advice(graph_break: GraphBreak) -> str:
    if "requires_grad" in graph_break.explanation or "requires_grad" in graph_break.code:
        return "pass in a tensor that requires grad: x.detach().requires_grad_() before the call"
    if "resize_" in graph_break.code:
        return "allocate a new tensor, or resize it outside the compiled function"
    return "make this change before the call"


def _size_advice(graph_break: GraphBreak) -> str:
    return "config.capture_dynamic_output_shape_ops = True, or mask with torch.where; or select outside the compiled function"


_WRAPPED_STEP = re.compile(r"function `(?P<name>[\w.]*step)` in file `[^`]*\blr_scheduler\.py`")
_DISABLE_REASON = re.compile(r"`torch\.compiler\.disable` \(reason: (?P<reason>.+)\)")


def _disabled_title(graph_break: GraphBreak) -> str:
    if _WRAPPED_STEP.search(graph_break.explanation):
        return f"a scheduler has wrapped the optimizer's step, and torch does not trace the wrapper{_code(graph_break)}"
    if "torch.compiler.disable" not in graph_break.kind:
        return f"{_name(graph_break)} is on torch's list of functions that are not traced{_code(graph_break)}"
    reason = _DISABLE_REASON.search(graph_break.explanation)
    because = f" ({reason['reason']})" if reason and reason["reason"] != "None" else ""
    return f"{_name(graph_break)} is under torch.compiler.disable{because}{_code(graph_break)}"


def _disabled_advice(graph_break: GraphBreak) -> str:
    if _WRAPPED_STEP.search(graph_break.explanation):
        return "leave it: only the wrapper runs eagerly; Dynamo compiles the step that it calls"
    known = known_advice(graph_break)
    if known is not None:
        return known
    if "torch.compiler.disable" in graph_break.kind:
        return (
            "call it before or after the compiled function; where it has to be called inside, wrap it as a "
            "torch.library.custom_op, or remove torch.compiler.disable if it is no longer needed"
        )
    return "call it outside the compiled function"


def _gradient_advice(graph_break: GraphBreak) -> str:
    if graph_break.compiled_autograd:  # outside of the compiled function it would not be compiled
        return "leave it: torch._dynamo.config.compiled_autograd compiles only a backward pass that runs inside compiled code"
    if "torch.autograd.grad" in graph_break.kind:
        return "torch._dynamo.config.trace_autograd_ops = True; or compile only the forward, and compute gradients outside"
    return "compile only the forward and the loss, and call backward() outside"


def _is_sparse(graph_break: GraphBreak) -> bool:
    return "sparse" in f"{graph_break.kind} {graph_break.callee}".lower() or "sparse Tensor" in graph_break.explanation


def _library_advice(graph_break: GraphBreak) -> str:
    library = graph_break.location.library
    if graph_break.callee in ("print", "builtins.print"):
        return "torch._dynamo.config.reorderable_logging_functions.add(print): the text is printed after the graph"
    if _is_print(graph_break):
        return "change what it warns of; or add the logger's method to torch._dynamo.config.ignore_logging_functions"
    known = libraries.advice_on_break(graph_break)
    if known is not None:
        return known
    rule = rule_by_reason(graph_break)
    if rule is not None and rule.id in ("DX202", "DX203", "DX209"):
        return f"look for an option of {library} that avoids it, or compile only the part before and after this call"
    return f"call it outside the compiled function, or report it to {library}"


def _block_title(graph_break: GraphBreak) -> str:
    function = graph_break.chain[0].function if graph_break.chain else "the function"
    return f"{_name(graph_break)} inside a {graph_break.block}: {function} continues eagerly{_code(graph_break)}"


def _block_advice(graph_break: GraphBreak) -> str:
    rule = rule_by_reason(graph_break)
    if rule is None:
        return f"move it out of the {graph_break.block}, or out of the function"
    advice = rule.advice(graph_break)
    return (
        advice
        if re.search(r"outside|out of", advice)
        else f"{advice}; or move it out of the {graph_break.block}, or out of the function"
    )


def rule_by_reason(graph_break: GraphBreak) -> BreakRule | None:
    """Return the first rule about why, not where, a graph breaks."""
    return next((rule for rule in RULES if rule.id not in _BY_LOCATION and rule.applies(graph_break)), None)


NOT_REBUILT = "DX217"


def unbuildable(graph_break: GraphBreak) -> str:
    """Return the value that Dynamo has no code to rebuild: `DictValuesIterator`, or a generator."""
    match = re.search(r"variable (\w+)", graph_break.explanation)
    return "a generator" if graph_break.kind.startswith("Generator") or match is None else match[1]


_BY_LOCATION = ("DX207", "DX501", "DX206")


# The first rule that applies is used: rules about the location of a graph break come before rules about its reason.
RULES: tuple[BreakRule, ...] = (
    BreakRule(
        "DX207",
        "torch.compile on a generator function",
        lambda b: b.kind == "Attempt to trace generator",
        lambda b: f"{b.location.function} is a generator: it runs eagerly",
        _advise("compile the body of one iteration, not the generator"),
    ),
    BreakRule(
        "DX501",
        "a library breaks the graph",
        lambda b: b.location.library is not None,
        lambda b: (
            f"{b.location.library} breaks the graph: {_name(b)}{f': {b.code_of_library}' if b.code_of_library else _code(b)}"
        ),
        _library_advice,
    ),
    BreakRule(
        "DX210",
        "a context manager that Dynamo does not trace",
        lambda b: b.kind == "Unsupported context manager",
        lambda b: f"Dynamo does not trace this context manager{_code(b)}",
        _context_advice,
    ),
    BreakRule(
        NOT_REBUILT,
        "a value that Dynamo cannot rebuild after a graph break",
        lambda b: b.kind.startswith(("Reconstruction failure", "Generator reconstruction")),
        lambda b: f"Dynamo cannot rebuild {unbuildable(b)} outside the graph{_code(b)}",
        lambda b: "remove the graph break inside this call, if there is one; or use a list or tensors instead",
    ),
    BreakRule(
        "DX206",
        "a graph break where torch cannot resume",
        lambda b: b.block is not None and not (b.resumable or b.fatal or b.kind == "Observed exception"),
        _block_title,
        _block_advice,
    ),
    BreakRule(
        "DX201",
        "a print or log call breaks the graph",
        _is_print,
        lambda b: f"{_name(b)} splits the graph in two",
        _advise("drop it, or move it out of the compiled function"),
    ),
    BreakRule(
        "DX202",
        "a tensor is converted to a Python number",
        _is_item,
        lambda b: f"reading a tensor's value breaks the graph{_code(b)}",
        _item_advice,
    ),
    BreakRule(
        "DX203",
        "Python branches on the value of a tensor",
        _is_data_dependent,
        lambda b: f"a Python branch depends on a tensor's value{_code(b)}",
        lambda b: _branch_advice(b.code),
    ),
    BreakRule(
        "DX209",
        "an output size depends on the data",
        lambda b: b.kind.startswith("Dynamic shape operator") or "output shape depends on input Tensor data" in b.explanation,
        lambda b: f"the output size of {b.callee or 'the operator'} depends on the data{_code(b)}",
        _size_advice,
    ),
    BreakRule(
        "DX211",
        "random numbers are drawn from a generator object",
        _is_generator_object,
        lambda b: f"Dynamo does not trace a generator object{_code(b)}",
        _advise("draw the random numbers outside the compiled function and pass them in as a tensor"),
    ),
    BreakRule(
        "DX214",
        "a tensor layout that Dynamo does not trace",
        _is_sparse,
        lambda b: f"Dynamo does not trace sparse tensors{_code(b)}",
        _advise("use the sparse tensor outside the compiled function, or a dense tensor, or index_add / scatter_add"),
    ),
    BreakRule(
        "DX208",
        "a mutation that Dynamo does not support",
        _is_mutation,
        lambda b: b.explanation.splitlines()[0] if b.explanation else b.reason,
        _mutation_advice,
    ),
    BreakRule(
        "DX204",
        "a C function has no Python code to trace",
        _is_builtin,
        lambda b: f"Dynamo does not trace {_untraced(b)}{_code(b)}",
        lambda b: known_advice(b) or "call it outside, or wrap it as a torch.library.custom_op",
    ),
    BreakRule(
        "DX205",
        "a disabled or skipped function is called",
        _is_disabled,
        _disabled_title,
        _disabled_advice,
    ),
    BreakRule(
        "DX212",
        "backward() runs inside the compiled function",
        lambda b: b.kind == "Unsupported Tensor.backward() call" or "torch.autograd.grad" in b.kind,
        lambda b: f"gradients are computed inside the compiled function{_code(b)}",
        _gradient_advice,
    ),
    BreakRule(
        "DX213",
        "a parameter or module is created inside the compiled function",
        lambda b: b.kind.startswith("Attempted to use `torch.nn.Parameter()`") or "nn.Module` inside" in b.explanation,
        lambda b: f"a parameter is created inside the compiled function{_code(b)}",
        _advise("create it in __init__, or before the call; a tensor that is not trained needs no Parameter"),
    ),
    BreakRule(
        "DX215",
        "a tensor or module is copied with copy.deepcopy",
        lambda b: "copy.deepcopy" in b.kind,
        lambda b: f"copy.deepcopy runs inside the compiled function{_code(b)}",
        _advise("copy outside the compiled function; of a tensor, use .clone()"),
    ),
    BreakRule(
        "DX216",
        "torch._dynamo.graph_break() is called",
        # torch.optim calls it around each step, which nobody can remove
        lambda b: b.kind.startswith("Call to `torch._dynamo.graph_break()`") and "graph_break" in b.code,
        lambda b: "torch._dynamo.graph_break() splits the graph in two",
        _advise("remove it, if the break is not wanted"),
    ),
)


def rule_of(graph_break: GraphBreak) -> BreakRule | None:
    """Return the first advice rule that applies to a graph break, or None."""
    return next((rule for rule in RULES if rule.applies(graph_break)), None)
