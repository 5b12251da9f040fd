"""A program behaves under `dynx run` as under Python: its environment, output, exit code and tracebacks are the same."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

PRINTS_ITS_ENVIRONMENT = """
import os, pickle, signal, sys

class Value:
    def __eq__(self, other):
        return type(self) is type(other)

print(sys.argv, __name__, __file__, __package__, __spec__)
print(sys.path[0] == os.path.dirname(os.path.abspath(__file__)), sys.modules["__main__"].__dict__ is globals())
print(pickle.loads(pickle.dumps(Value())) == Value(), Value.__module__)
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.excepthook is sys.__excepthook__)
print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.gettrace(), __builtins__.__name__)
print(sorted(globals()), type(__loader__), __doc__, __cached__)
print(sys.stdin.read())
"""


def test_script_under_dynx_run_sees_the_same_interpreter_state_as_under_python(program, both):
    program(PRINTS_ITS_ENVIRONMENT)
    plain, watched = both("program.py", "--flag", "value", "--", "-x", "--out", input="typed")
    assert plain.returncode == 0, plain.stderr
    assert watched.stdout == plain.stdout
    assert watched.returncode == 0


def test_module_under_dynx_run_sees_the_same_interpreter_state_as_under_python(program, shell):
    folder = program("").parent / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "__main__.py").write_text(
        "import sys\nfrom package import inner\nprint(sys.argv, __name__, __package__, __spec__.name, sys.path[0])"
    )
    (folder / "inner.py").write_text("import sys\nprint(__name__, __package__)\nif __name__ == '__main__': sys.exit(4)")
    for target, code in (("package", 0), ("package.inner", 4)):
        plain = shell("-m", target, "a", "-b")
        watched = shell("-m", "dynx", "run", "-m", target, "a", "-b")
        assert watched.stdout == plain.stdout
        assert watched.returncode == plain.returncode == code


def test_dynx_run_of_a_folder_runs_its_main_module_as_python_does(program, both):
    folder = program("").parent / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text("import sys, inner\nprint(sys.argv, __name__, inner.__name__)")
    (folder / "inner.py").write_text("")
    plain, watched = both("app", "a")
    assert plain.stdout == watched.stdout == "['app', 'a'] __main__ inner\n"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import sys; print('out'); sys.exit(3)", 3),
        ("import sys; sys.exit('a message')", 1),
        ("raise SystemExit", 0),
        ("import os; print('out', flush=True); os._exit(7)", 7),
        ("print('out'); 1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os, signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)", -2),
        ("import signal\nsignal.signal(signal.SIGINT, lambda *a: print('caught'))\nsignal.raise_signal(signal.SIGINT)", 0),
        ("import atexit; atexit.register(print, 'bye')", 0),
        ("import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0", 1),
        ("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0),
        ("from concurrent.futures import ThreadPoolExecutor\nprint(ThreadPoolExecutor().submit(len, 'abc').result())", 0),
        (
            "import threading\nmain = threading.main_thread()\n"
            "threading.Thread(target=lambda: (main.join(), print('after main'))).start()",
            0,
        ),
        ("import sys; sys.stderr.close()", 0),
        ("raise OSError(2, 'No such file', 'data.bin')", 1),
        ("from dynx.errors import DynxError\nraise DynxError('mine')", 1),
    ],
    ids=[
        "exit 3",
        "exit message",
        "SystemExit",
        "os._exit",
        "raise",
        "SIGTERM",
        "SIGKILL",
        "Ctrl-C",
        "SIGINT handler",
        "atexit",
        "excepthook",
        "thread",
        "executor",
        "thread joins main thread",
        "closed stderr",
        "OSError",
        "DynxError",
    ],
)
def test_exit_code_and_output_under_dynx_run_are_the_same_as_under_python(program, both, source, code):
    plain, watched = both(program(source))
    assert plain.returncode == code
    assert watched.returncode == code
    assert watched.stdout == plain.stdout


def test_traceback_under_dynx_run_has_only_frames_of_the_program(program, both):
    source = """
    def inner():
        raise ValueError("wrong")

    try:
        inner()
    except ValueError as error:
        raise RuntimeError("worse") from error
    """
    plain, watched = both(program(source))
    assert plain.stderr.strip() in watched.stderr
    assert "dynx/cli" not in watched.stderr


def test_syntax_error_under_dynx_run_is_printed_as_python_prints_it(program, shell):
    done = shell("-m", "dynx", "run", program("def f(:\n"))
    plain = shell(program("def f(:\n"))
    assert done.returncode == plain.returncode == 1
    assert plain.stderr.strip() in done.stderr


@pytest.mark.parametrize("target", [["gone.py"], ["-m", "gone"], ["-m", "a..b"], ["-m", "os.path.gone"]], ids=" ".join)
def test_dynx_run_of_a_missing_script_or_module_is_an_error_without_a_traceback(shell, target):
    done = shell("-m", "dynx", "run", *target)
    assert done.returncode == 2
    assert done.stderr.startswith("dynx: ")
    assert "Traceback" not in done.stderr
