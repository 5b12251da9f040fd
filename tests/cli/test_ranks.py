"""Every rank of a distributed job writes a run file of its own, however the job is started and however the rank ends."""

from __future__ import annotations

import re
import socket
import sys
import textwrap

import pytest

from dynx import Run
from dynx.pgo import Profile

TRAIN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
f = torch.compile(lambda x: x + 1, backend="eager")
f(torch.ones(3))
if dist.get_rank() == 1:
    f(torch.ones(4))
dist.barrier()
dist.destroy_process_group()
"""
WATCHES_ITSELF = f"""
import dynx
with dynx.watch(out=".dynx/last.dynx"):
{textwrap.indent(TRAIN, "    ")}
"""
SPAWNS = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    f = torch.compile(lambda x: x + 1, backend="eager")
    f(torch.ones(3))
    if rank == 1:
        f(torch.ones(4))
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.START(work, args=(os.getcwd(),), nprocs=2)
"""
# starts one process for each rank, as DeepSpeed's launcher and shell scripts do
LAUNCHES = """
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1])}
workers = []
for rank in range(2):
    env = {**os.environ, **address, "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    workers.append(subprocess.Popen([sys.executable, "-u", "train.py"], env=env))
sys.exit(max(worker.wait() for worker in workers))
"""
PROGRAMS = {
    "train.py": TRAIN,
    "watches.py": WATCHES_ITSELF,
    "spawns.py": SPAWNS.replace("START", "spawn"),
    "forks.py": SPAWNS.replace("START", "start_processes").replace("nprocs=2", 'nprocs=2, start_method="fork"'),
    "launches.py": LAUNCHES,
}
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
DYNX = ("-m", "dynx", "run")


@pytest.fixture
def start(program, shell):
    """Return a function that writes the programs, runs a command and returns its result."""
    with socket.create_server(("127.0.0.1", 0)) as server:  # a port that no torchrun of another test uses
        port = str(server.getsockname()[1])

    def run(*command, **sources):
        for name, source in {**PROGRAMS, **{f"{name}.py": source for name, source in sources.items()}}.items():
            program(source, name)
        return shell(*command, env={"OMP_NUM_THREADS": "1", "PET_MASTER_PORT": port})

    return run


def files(tmp_path):
    return sorted(path.name for path in (tmp_path / ".dynx").iterdir())


def load(tmp_path, name):
    return Run.load(tmp_path / ".dynx" / name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "parent"),
    [
        ((*TORCHRUN, "-m", "dynx", "run", "train.py"), False),
        ((*TORCHRUN, "--no-python", sys.executable, *DYNX, "train.py"), False),
        ((*TORCHRUN, "watches.py"), False),
        ((*DYNX, *TORCHRUN, "train.py"), True),
        ((*DYNX, *TORCHRUN, "--no-python", sys.executable, "train.py"), True),
        ((*DYNX, *TORCHRUN, "-m", "train"), True),
        ((*DYNX, *TORCHRUN, "--run-path", "train.py"), True),
        ((*DYNX, "launches.py"), True),
        ((*DYNX, "spawns.py"), True),
        ((*DYNX, "forks.py"), True),
    ],
    ids=[
        "torchrun dynx run",
        "torchrun --no-python",
        "watch()",
        "dynx run torchrun",
        "dynx run torchrun --no-python",
        "dynx run torchrun -m",
        "dynx run torchrun --run-path",
        "launcher script",
        "mp.spawn",
        "mp.start_processes fork",
    ],
)
def test_each_rank_writes_its_own_run_file(start, tmp_path, command, parent):
    """Ranks that all write `.dynx/last.dynx` overwrite each other's records."""
    done = start(*command)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == [*(["last.dynx"] if parent else []), "last.rank0.dynx", "last.rank1.dynx"]
    for rank in (0, 1):
        run = load(tmp_path, f"last.rank{rank}.dynx")
        assert (len(run.compiles), len(run.recompiles)) == (rank + 1, rank)
        assert (run.header["rank"], run.header["world_size"]) == (rank, 2)
        assert ("parent" in run.header) == parent
        assert run.end["outcome"] == "finished"
    if parent:
        assert "nothing was compiled" not in done.stderr
        assert re.search(r"rank 0 of 2 +1 compile +0 recompiles +0 graph breaks +.dynx/last.rank0.dynx", done.stderr)
        assert re.search(r"rank 1 of 2 +2 compiles +1 recompile +0 graph breaks +.dynx/last.rank1.dynx", done.stderr)
        assert load(tmp_path, "last.dynx").end["outcome"] in ("finished", "exit 0")
    elif "watches.py" not in command:
        assert done.stderr.count("rank 0 of 2 · torch") == done.stderr.count("rank 1 of 2 · torch") == 1
        assert done.stderr.count("saved: dynx show .dynx/last.rank") == 2


@pytest.mark.slow
def test_ranks_share_a_profile(start, tmp_path):
    """Rank 0 has one length only; it begins the next job with what rank 1 learned."""
    train = TRAIN.replace("lambda x: x + 1", "add") + "\n"
    source = f"def add(x):\n    return x + 1\n{train}"
    command = (*TORCHRUN, "-m", "dynx", "run", "--pgo", "profile.json", "train.py")
    start(*command, train=source)
    assert [len(load(tmp_path, f"last.rank{rank}.dynx").compiles) for rank in (0, 1)] == [1, 2]
    (size,) = Profile.load(tmp_path / "profile.json").explain()
    assert (size.source, size.dim, {seen.value for seen in size.seen}) == ("L['x']", 0, {3, 4})

    start(*command, train=source)
    runs = [load(tmp_path, f"last.rank{rank}.dynx") for rank in (0, 1)]
    assert [len(run.compiles) for run in runs] == [1, 1]
    for run in runs:
        assert str(run.dynamic[0]).startswith("L['x'] size 0: dynamic from profile.json, 3 then 4 in run ")


@pytest.mark.slow
def test_dynx_show_names_the_rank_of_a_run_and_lists_the_ranks_of_a_launcher(start, shell):
    start(*DYNX, *TORCHRUN, "train.py")
    assert "rank 1 of 2 · torch" in shell("-m", "dynx", "show", ".dynx/last.rank1.dynx").stdout
    shown = shell("-m", "dynx", "show").stdout
    assert "rank 0 of 2" in shown
    assert ".dynx/last.rank1.dynx" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ("1 / 0", "raised ZeroDivisionError"),
        ("raise SystemExit(3)", "exit 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", None),
    ],
    ids=["raises", "exits", "SIGKILL"],
)
def test_run_file_of_a_rank_that_dies_has_its_compiles(start, tmp_path, ending, outcome):
    both_compiled = "dist.barrier()\n"  # torchrun ends the other rank at once
    dies = f"{both_compiled}if dist.get_rank() == 1:\n    {ending}\nelse:\n    dist.barrier()\n"
    done = start(*DYNX, *TORCHRUN, "dies.py", dies=TRAIN.replace("dist.barrier()\n", dies))
    assert done.returncode == 1
    run = load(tmp_path, "last.rank1.dynx")
    assert len(run.compiles) == 2
    assert run.end.get("outcome") == outcome
    assert len(load(tmp_path, "last.rank0.dynx").compiles) == 1
    assert f"({outcome or 'did not finish'})" in done.stderr
    assert "exitcode  : " in done.stderr  # torchrun's own report of the failure


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [(*DYNX, *TORCHRUN), (*TORCHRUN, "-m", "dynx", "run")], ids=["dynx run torchrun", "torchrun dynx run"]
)
def test_restarted_worker_group_keeps_the_run_files_of_the_first_attempt(start, tmp_path, command):
    """The user wants to look at the attempt that failed."""
    source = """
import os, pathlib, time
import torch

torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "0":
        pathlib.Path("compiled").touch()
        time.sleep(60)  # torchrun kills this rank
    while not pathlib.Path("compiled").exists():
        time.sleep(0.01)
    raise SystemExit(1)
"""
    restarting = [*command]
    position = restarting.index("--nproc-per-node")
    restarting[position:position] = ["--max-restarts", "1", "--monitor-interval", "1"]
    done = start(*restarting, "restarts.py", restarts=source)
    assert done.returncode == 0, done.stderr
    assert [name for name in files(tmp_path) if name != "last.dynx"] == [
        "last.rank0.dynx",
        "last.rank0.restart1.dynx",
        "last.rank1.dynx",
        "last.rank1.restart1.dynx",
    ]
    assert load(tmp_path, "last.rank1.dynx").end["outcome"] == "exit 1"
    assert load(tmp_path, "last.rank1.restart1.dynx").end["outcome"] == "finished"
    assert "rank 1 of 2, restart 1" in done.stderr


@pytest.mark.slow
def test_ranks_started_later_do_not_overwrite_the_run_files_of_earlier_ranks(start, tmp_path):
    """A program may start one group of processes to train and another one to evaluate."""
    later = "    os.mkdir('2')\n    mp.start_processes(work, args=(os.path.abspath('2'),), nprocs=2, start_method='fork')\n"
    twice = PROGRAMS["forks.py"] + later  # with a store of its own: torch may be deleting the one of the earlier ranks
    done = start(*DYNX, "twice.py", twice=twice)
    assert done.returncode == 0, done.stderr
    names = ["last.rank0-2.dynx", "last.rank0.dynx", "last.rank1-2.dynx", "last.rank1.dynx"]
    assert files(tmp_path) == ["last.dynx", *names]
    assert [len(load(tmp_path, name).compiles) for name in names] == [1, 1, 2, 2]


@pytest.mark.slow
def test_dataloader_worker_of_a_rank_writes_its_own_run_file(start, tmp_path, monkeypatch):
    """A DataLoader worker inherits RANK from its rank, but is not a rank itself."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # torch compiles nothing in a fork of a process that uses CUDA
    source = (
        TRAIN.replace("dist.barrier()\n", "")
        + """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))

list(torch.utils.data.DataLoader(Data(), num_workers=1))
"""
    )
    done = start(*DYNX, *TORCHRUN, "loads.py", loads=source)
    assert done.returncode == 0, done.stderr
    names = [name for name in files(tmp_path) if name not in ("last.dynx", "last.rank0.dynx", "last.rank1.dynx")]
    assert [name.split(".")[1] for name in names] == ["rank0", "rank1"]
    assert all(name.split(".")[2].isdigit() for name in names)
    assert [len(load(tmp_path, name).compiles) for name in names] == [1, 1]
    assert len(load(tmp_path, "last.rank1.dynx").compiles) == 2


LOOKS_AROUND = """
import os, pickle, signal, subprocess, sys, traceback

class Mine:
    pass

print(sys.argv, __name__, __file__, __package__, __spec__ and __spec__.name, sys.flags, sys.warnoptions)
print(sys.path, sys.modules["__main__"].__dict__ is globals(), sorted(globals()))
print(type(pickle.loads(pickle.dumps(Mine()))) is Mine, Mine.__module__)
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), sys.excepthook is sys.__excepthook__)
print(sys.stdout.line_buffering, sys.stdout.write_through, os.getpgid(0) == os.getpid())
print(subprocess.run([sys.executable, "-c", "import sys; print('dynx' in sys.modules)"], capture_output=True).stdout)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("target", [("looks.py",), ("-m", "looks")], ids=["script", "module"])
def test_worker_script_sees_the_same_interpreter_state_under_dynx_run(start, target):
    command = ("-m", "torch.distributed.run", "--nproc-per-node", "1", *target)
    plain = start(*command, "0", "--out", "-m", looks=LOOKS_AROUND)
    watched = start(*DYNX, *command, "0", "--out", "-m", looks=LOOKS_AROUND)
    assert plain.returncode == watched.returncode == 0, watched.stderr
    assert watched.stdout == plain.stdout


@pytest.mark.slow
def test_traceback_of_a_worker_under_dynx_run_has_only_frames_of_the_program(start):
    source = "import subprocess\ndef run():\n    subprocess.run(['not-a-command'])\nrun()\n"
    command = ("-m", "torch.distributed.run", "--nproc-per-node", "1", "raises.py")
    plain, watched = start(*command, raises=source), start(*DYNX, *command, raises=source)
    assert "FileNotFoundError" in plain.stderr
    start_of = 'Traceback (most recent call last):\n  File "'
    trace = plain.stderr[plain.stderr.index(start_of) : plain.stderr.index("FileNotFoundError")]
    assert trace in watched.stderr


@pytest.mark.slow
def test_missing_worker_script_is_reported_by_python_itself(start):
    done = start(*DYNX, "-m", "torch.distributed.run", "--nproc-per-node", "1", "gone.py")
    assert "can't open file" in done.stderr
    assert "exitcode  : 2" in done.stderr


@pytest.mark.slow
def test_worker_command_that_does_not_run_this_python_is_reported(start):
    done = start(*DYNX, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--no-python", "echo", "hello")
    assert done.returncode == 0
    assert done.stdout == "hello\n"
    assert "dynx cannot watch the worker echo hello: it is not a script or module run by" in done.stderr
