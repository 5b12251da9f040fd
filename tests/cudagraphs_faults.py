"""Plants faults in dynx.cudagraphs, one at a time, and sees that its tests notice: `make faults`.

Each fault changes one place of a copy of the package; the tests that are named have to fail with it.
Exits with 1 when a fault is not noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = "dynx/cudagraphs"


class Fault(NamedTuple):
    """A change of the source, and the tests that have to notice."""

    what: str
    file: str
    before: str
    after: str
    tests: str


FAULTS = (
    Fault(
        "copies are views, which autograd forbids to change",
        "_staging.py",
        "return copy.expand(tensor.size()).detach() if repeated else copy",
        "return copy.expand(tensor.size())",
        "test_training.py",
    ),
    Fault(
        "what only the layout is read of is copied",
        "_outputs.py",
        "index < self._plan.user_outputs and index not in self._plan.regenerated",
        "index < self._plan.user_outputs",
        "test_views.py",
    ),
    Fault(
        "work on the CPU is let into a capture for CUDA",
        "runtime/_on_cpu.py",
        "if given and not is_between:",
        "if not given and not is_between:",
        "test_on_cpu.py",
    ),
    Fault(
        "what is read on the CPU passes for a number of Python's",
        "runtime/_on_cpu.py",
        "elif are_known:",
        "else:",
        "test_on_cpu.py",
    ),
    Fault(
        "inputs are not copied",
        "_staging.py",
        "foreach.copy_all(mine, [args[index] for index in dynamic])",
        "pass",
        "test_models.py test_partition.py test_inference.py",
    ),
    Fault(
        "one input is not copied",
        "_staging.py",
        "mine[0].copy_(args[dynamic[0]])",
        "pass",
        "test_inference.py",
    ),
    Fault(
        "changes are not copied back",
        "_staging.py",
        "return copy_there_and_back if written else copy",
        "return copy",
        "test_inference.py",
    ),
    Fault(
        "attributes of objects are not followed",
        "_modules.py",
        "self._look_at_names(value, attributes, self._attributes)",
        "pass",
        "test_modules.py",
    ),
    Fault(
        "owners of parameters are not looked for",
        "_train_step.py",
        "others = [] if frozen else owners_of(",
        "others = [] if True else owners_of(",
        "test_train_step_noticed.py",
    ),
    Fault(
        "frozen parameters keep gradients of earlier steps",
        "_train_step.py",
        "is_kept = [each.requires_grad or",
        "is_kept = [True or",
        "test_train_step_noticed.py",
    ),
    Fault(
        "names of modules are not part of a key",
        "_states.py",
        "names = binding_key(self._function)\n        return values, tuple(map(place_of",
        "names = ()\n        return values, tuple(map(place_of",
        "test_modules.py",
    ),
    Fault(
        "the recording that was used last is given up",
        "_recordings.py",
        "            if recording in known:\n                self._by_key.move_to_end(key)\n",
        "            if recording in known:\n",
        "test_fast_path.py",
    ),
    Fault(
        "gradients that are set in the middle of a step are overlooked",
        "_train_step.py",
        "if memory is not None and each is not memory:",
        "if False:",
        "test_train_step_noticed.py",
    ),
    Fault(
        "what belongs to other processes is trained in place",
        "_in_place.py",
        "check_wrappers(wanted.parameters)",
        "pass",
        "test_in_place_noticed.py",
    ),
    Fault(
        "buffers are given as copies",
        "_in_place.py",
        "return self._with_buffers(given) if self._given_back else given",
        "return given",
        "test_in_place_noticed.py",
    ),
    Fault(
        "strides are lost",
        "_staging.py",
        "copy = copy_of(compact)",
        "copy = compact.contiguous().clone()",
        "test_inference.py",
    ),
    Fault(
        "a recording of other numbers is taken",
        "_recording.py",
        "and numbers_of(args, numbers) == expected",
        "",
        "test_inference.py",
    ),
    Fault(
        "a recording of other addresses is taken",
        "_recording.py",
        "return lambda args: _are_at(args, addresses, still)\n",
        "return lambda args: True\n",
        "test_inference.py",
    ),
    Fault(
        "a recording that is pending is taken",
        "_recording.py",
        "return (self._pending is None or self._pending.expired()) and self._is_for(args)",
        "return self._is_for(args)",
        "test_training.py",
    ),
    Fault(
        "recordings of forward passes share memory",
        "_runner.py",
        "self._runtime.new_pool() if self._has_own_pools else None",
        "None",
        "test_training.py",
    ),
    Fault(
        "gradients are the recording's own",
        "_outputs.py",
        'self._how = "clone" if plan.part == "backward" else "alias"',
        "self._how = how",
        "test_training.py",
    ),
    Fault(
        "results are the recording's own",
        "_outputs.py",
        'if self._how == "clone" and index',
        "if False and index",
        "test_inference.py",
    ),
    Fault(
        "results that are saved are copied",
        "_divided.py",
        "if index < user_outputs else places[each]",
        "if True else places[each]",
        "test_partition.py",
    ),
    Fault(
        "writes do not wait",
        "_partition.py",
        "if is_write or other_writes:",
        "if False:",
        "test_partition.py",
    ),
    Fault(
        "random numbers lose their order",
        "_partition.py",
        "yield from pairwise(random)",
        "yield from ()",
        "test_partition.py",
    ),
    Fault(
        "several results leave their piece together",
        "_partition.py",
        "if node.target is getitem and node.args[0] in uncaptured:",
        "if False:",
        "test_partition.py",
    ),
    Fault(
        "sizes are no part of a piece's key",
        "_pieces.py",
        "dict.fromkeys([*numbers, *outside])",
        "dict.fromkeys(outside)",
        "test_partition.py",
    ),
    Fault(
        "gradients of the last step are left",
        "_train_step.py",
        "foreach.zero_all(",
        "len(",
        "test_train_step.py",
    ),
    Fault(
        "gradients in place are replaced, not added",
        "_pair.py",
        "return self._adding.run(given)",
        "return backward.run(given)",
        "test_training.py",
    ),
    Fault(
        "gradients in place are overwritten before they are added",
        "_pair.py",
        "each.clone() if each is mine else each for",
        "each for",
        "test_graphed.py",
    ),
    Fault(
        "a pair that is pending is taken",
        "_recorded.py",
        "lambda: not recording.is_pending and is_unchanged()",
        "is_unchanged",
        "test_graphed.py",
    ),
    Fault(
        "what a function changes in its modules is not noticed",
        "_recorded.py",
        "if what := self._state.changed_itself(key[1]):",
        "if what := '':",
        "test_parameters.py",
    ),
    Fault(
        "what is assigned while a graph is captured stays",
        "_states.py",
        "for now, then in before if names else ():",
        "for now, then in ():",
        "test_parameters.py",
    ),
    Fault(
        "views of arguments are copies",
        "_recording.py",
        "if is_theirs else ()",
        "if False else ()",
        "test_views.py",
    ),
    Fault(
        "copies are laid out anew",
        "_staging.py",
        "return copy.expand(tensor.size()).detach() if repeated else copy",
        "return tensor.clone(memory_format=torch.contiguous_format)",
        "test_views.py",
    ),
    Fault(
        "what hooks keep is overwritten",
        "_runner.py",
        "if self._saves and hooks_are_set():",
        "if False:",
        "test_saved.py",
    ),
    Fault(
        "what a divided graph saved is overwritten",
        "_pieces.py",
        "kept.sort(key=lambda each: each not in internal)",
        "kept.sort(key=lambda each: each in internal)",
        "test_saved.py",
    ),
    Fault(
        "arguments may overlap",
        "_first_call.py",
        "(changes.are_arguments and len(set(found)) < len(found))",
        "False",
        "test_noticed.py",
    ),
    Fault(
        "objects among the arguments are taken as they are",
        "_first_call.py",
        "elif not isinstance(each, (*_PLAIN, *_WITHOUT_STATE)) and not covers(each):",
        "elif False:",
        "test_noticed.py",
    ),
    Fault(
        "the state of an optimizer is not looked at",
        "_training_state.py",
        "and is_unchanged()",
        "",
        "test_train_step_noticed.py",
    ),
    Fault(
        "what is not trained is",
        "_training_state.py",
        "and list(map(needs_gradient, params)) == need",
        "",
        "test_train_step_noticed.py",
    ),
    Fault(
        "leaves that are no parameters are captured",
        "_train_step.py",
        "_check_leaves(loss, self.params)\n",
        "\n",
        "test_train_step_noticed.py",
    ),
    Fault(
        "gradients of arguments add to those of parameters",
        "_pair.py",
        "if not is_wanted(self._end):",
        "if False:",
        "test_in_place_noticed.py",
    ),
    Fault(
        "a result is read while it is written",
        "_recording.py",
        'own = [] if config.outputs == "clone" else _ranges(captured.outputs)',
        "own = []",
        "test_inference.py",
    ),
    Fault(
        "parameters that move are not noticed",
        "_training_state.py",
        "_are_at(params, addresses, all_of_them)\n",
        "True\n",
        "test_train_step.py",
    ),
    Fault(
        "changes of a module are not noticed",
        "_states.py",
        "are_same() and ",
        "",
        "test_fast_path.py",
    ),
    Fault(
        "strides are no part of a layout",
        "_arguments.py",
        "leaf.size(), leaf.stride(), leaf.requires_grad",
        "leaf.size(), leaf.requires_grad",
        "test_fast_path.py",
    ),
    Fault(
        "a recording that is pending is forgotten",
        "_recordings.py",
        "if not each.is_pending:",
        "if True:",
        "test_training.py",
    ),
    Fault(
        "graphs that change something are tried",
        "_recording.py",
        "if not plan.is_pure:",
        "if False:",
        "test_patching.py",
    ),
    Fault(
        "any word is a pointer",
        "runtime/_pointers.py",
        "part = None if is_internal else _stale_part(here, there, memory, host)",
        "part = slice(0, 0)",
        "test_pointers.py",
    ),
    Fault(
        "what moves often is recorded anew for ever",
        "_moves.py",
        "if any(times >= _OFTEN",
        "if False and any(times >= _OFTEN",
        "test_supported.py",
    ),
    Fault(
        "results that the graph does not copy are given to others",
        "_recording.py",
        "if len(handed) < len(outputs):\n        return False\n    captured.release(handed)",
        "captured.release(outputs)",
        "test_inference.py",
    ),
    Fault(
        "sizes that no number tells are forgotten",
        "_plan.py",
        "_symbols(node) <= told",
        "True",
        "test_supported.py",
    ),
    Fault(
        "what is handed on stays that of the recording",
        "_handed_on.py",
        "outputs[result] = given",
        "pass",
        "test_supported.py",
    ),
    Fault(
        "parameters that were replaced are not looked for",
        "_told.py",
        "if self._instead is None and not self._are_same():",
        "if False:",
        "test_parameters.py",
    ),
    Fault(
        "a graph inside of another is replayed",
        "_recorded.py",
        "if self._is_captured():",
        "if False:",
        "test_supported.py",
    ),
    Fault(
        "wrappers that do something are left out",
        "_direct.py",
        "self._is_proven = self._has_shown(args, results, *self._inside.seen)",
        "self._is_proven = True",
        "test_direct.py",
    ),
    Fault(
        "inputs that need gradients go around what turns autograd off",
        "_direct.py",
        "if self._is_proven is False or torch.is_grad_enabled():",
        "if self._is_proven is False:",
        "test_direct.py",
    ),
    Fault(
        "results that share memory are copied apart",
        "_overlaps.py",
        "if len(group) > 1",
        "if len(group) > 99",
        "test_overlaps.py",
    ),
    Fault(
        "gradients share memory",
        "_outputs.py",
        'self._plan.part in ("forward", "backward")',
        "False",
        "test_overlaps.py",
    ),
    Fault(
        "a plan is taken for another graph",
        "_plans.py",
        "{_name(node.target)} {operators} {node.args} {node.kwargs}",
        "",
        "test_plans.py",
    ),
    Fault(
        "a plan is taken for operators with other tags",
        "_plans.py",
        "sorted(map(str, operator.tags))",
        "[]",
        "test_plans.py",
    ),
    Fault(
        "what is a view of a recording is overwritten",
        "_divided.py",
        "values[place] = own_copy(found[number])",
        "pass",
        "test_partition.py",
    ),
    Fault(
        "what wrappers do besides is left out",
        "_backend.py",
        "not aot.graph_facts().acts_besides",
        "True",
        "test_direct.py",
    ),
    Fault(
        "-0.0 is taken for 0.0",
        "_arguments.py",
        "return type(leaf), repr(leaf)",
        "return type(leaf), leaf",
        "test_fast_path.py",
    ),
)


def is_noticed(fault: Fault) -> tuple[Fault, bool, float]:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "dynx", Path(folder) / "dynx", ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(folder) / PACKAGE / fault.file
        path.write_text(path.read_text().replace(fault.before, fault.after))
        tests = [str(ROOT / "tests" / "cudagraphs" / name) for name in fault.tests.split()]
        options = ["-c", str(ROOT / "pyproject.toml"), "-x", "-q", "-p", "no:cacheprovider", "-m", "not gpu"]
        command = [sys.executable, "-m", "pytest", *options, *tests]  # which looks first where it is run
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(ROOT / "tests")])}
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if found.returncode not in (0, 1):
        sys.exit(f"{fault.what}: the tests did not run\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
    return fault, found.returncode == 1, time.monotonic() - begin


NOTHING = Fault("nothing", "_config.py", "import os", "import os", "test_config.py test_emulator.py")


def main(only: str = "") -> int:
    for each in FAULTS:
        if each.before not in (ROOT / PACKAGE / each.file).read_text():
            sys.exit(f"{each.what}: {each.file} has no {each.before!r}\n  write the fault anew")
    if is_noticed(NOTHING)[1]:
        sys.exit("tests fail without a fault")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(is_noticed, [each for each in FAULTS if only in each.file]))
    for fault, noticed, seconds in found:
        print(f"{'noticed' if noticed else 'NOT NOTICED':12} {seconds:5.0f} s  {fault.file:24} {fault.what}")
    missed = sum(not noticed for _, noticed, _ in found)
    print(f"{len(found) - missed} of {len(found)} faults noticed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
