"""Tracebacks of a program and of its hooks have no frame of dynx, and a program that is no Python has no report."""

from __future__ import annotations

import re

import pytest

HOOKS = {
    "a hook that raises": """
        import sys
        def hook(kind, error, traceback):
            raise RuntimeError("of the hook")
        sys.excepthook = hook
        def f():
            1 / 0
        f()
    """,
    "a hook that raises from another error": """
        import sys
        def hook(kind, error, traceback):
            try:
                {}["a"]
            except KeyError as missing:
                raise RuntimeError("of the hook") from missing
        sys.excepthook = hook
        1 / 0
    """,
    "a hook that is no function": """
        import sys
        sys.excepthook = 3
        1 / 0
    """,
    "a hook with other parameters": """
        import sys
        sys.excepthook = lambda: None
        1 / 0
    """,
    "a hook that exits": """
        import sys
        sys.excepthook = lambda *error: sys.exit(7)
        1 / 0
    """,
    "a hook that is interrupted": """
        import sys
        def hook(*error):
            raise KeyboardInterrupt
        sys.excepthook = hook
        1 / 0
    """,
    "a hook that prints the traceback": """
        import sys, traceback
        sys.excepthook = lambda kind, error, frames: print("".join(traceback.format_exception(error)), file=sys.stderr)
        1 / 0
    """,
    "no hook": """
        import sys
        del sys.excepthook
        1 / 0
    """,
    "a hook of threads that raises": """
        import threading
        def hook(arguments):
            raise RuntimeError("of the hook")
        threading.excepthook = hook
        def work():
            1 / 0
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    """,
    "an exit handler that raises": """
        import atexit
        def ending():
            1 / 0
        atexit.register(ending)
    """,
    "an error in a hook of unraisable errors": """
        import sys
        def hook(arguments):
            raise RuntimeError("of the hook")
        sys.unraisablehook = hook
        class A:
            def __del__(self):
                1 / 0
        A()
    """,
}


def without_report(stderr):
    """Return what the program printed on stderr, with the names of threads and addresses made equal."""
    before = re.split(r"\n? dynx run [^\n]*\n", stderr)[0]
    return re.sub(r"0x[0-9a-f]+", "0x", before).rstrip("\n")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if number == 0 else pytest.mark.slow) for number, name in enumerate(HOOKS)]
)
def test_stderr_of_a_program_with_a_hook_is_that_of_python(name, both, program):
    """`Error in sys.excepthook` with frames of dynx would look like a fault of dynx."""
    plain, watched = both(program(HOOKS[name]))
    assert watched.returncode == plain.returncode
    assert without_report(watched.stderr) == without_report(plain.stderr)
    assert "dynx/cli" not in watched.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["guards"], ["memory"], ["pgo", "apply", "p.json"]], ids=" ".join)
def test_other_commands_show_no_frame_of_dynx_either(command, shell, program):
    path = program(HOOKS["a hook that raises"] + "    f()\n")
    shell("-c", "from dynx.pgo import Profile; Profile().save('p.json')")
    target = str(path) if command[0] == "pgo" else f"{path}::f"
    done = shell("-m", "dynx", *command, target)
    assert "Error in sys.excepthook" in done.stderr
    assert "Original exception was" in done.stderr
    assert "dynx/cli" not in done.stderr


BROKEN = "import torch\nprint('before')\nx = = 1\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "broken.py"],
        pytest.param(["run", "-m", "broken"], marks=pytest.mark.slow),
        pytest.param(["run", "-c", BROKEN], marks=pytest.mark.slow),
        pytest.param(["run", "-"], marks=pytest.mark.slow),
        pytest.param(["guards", "broken.py::f"], marks=pytest.mark.slow),
        pytest.param(["memory", "broken.py::f"], marks=pytest.mark.slow),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_after_a_syntax_error_nothing_is_reported(words, shell, program, tmp_path):
    """The program did not begin: a report of nothing hides the line of the error, and would replace the last run file."""
    program(BROKEN, "broken.py")
    python = {"broken.py": ["broken.py"], "broken.py::f": ["broken.py"]}.get(words[1], words[1:])
    plain = shell(*python, input=BROKEN)
    done = shell("-m", "dynx", *words, input=BROKEN)
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert done.stderr == re.sub(r'  File "<frozen runpy>".*\n', "", plain.stderr)
    assert "SyntaxError" in done.stderr
    assert not (tmp_path / ".dynx").exists()
