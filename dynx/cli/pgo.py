"""`dynx pgo …`: read, compare, merge, prune and check profiles of dynamic sizes, and run a program with one."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dynx.cli import program
from dynx.cli.arguments import Parser
from dynx.cli.command import Subparsers
from dynx.cli.run import execute
from dynx.cli.screen import show

if TYPE_CHECKING:
    from dynx.pgo import Profile

Action = Callable[[argparse.Namespace], int | Callable[[], int]]

_PICKLE = b"\x80"  # the first byte of a profile that torch wrote


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("pgo", help="profiles of dynamic sizes: dump, diff, merge, prune, explain, verify, apply")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    file_help = "a profile of dynx, or code_state_….pkl of torch"

    def action(name: str, act: Action, text: str) -> Parser:
        added = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(act=act)
        return added

    dump = action("dump", _dump, "print a profile")
    dump.add_argument("file", type=Path, help=file_help)
    kind = dump.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="print the profile in dynx's JSON format, even if FILE is torch's")
    kind.add_argument("--sources", action="store_true", help="print the dynamic sources, for TORCH_COMPILE_DYNAMIC_SOURCES")
    kind.add_argument(
        "--dims",
        action="store_true",
        help="print the dynamic sources with their dims, such as L['x']:0, which torch reads from 2.13 on",
    )

    diff = action("diff", _diff, "print the sizes in which two profiles differ; exit code 1 if there are any")
    diff.add_argument("before", type=Path, help=file_help)
    diff.add_argument("after", type=Path, help=file_help)

    merge = action("merge", _merge, "merge several profiles into one")
    merge.add_argument("files", type=Path, nargs="+", help=file_help)
    merge.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write the profile to")

    prune = action("prune", _prune, "write a profile in which fewer sizes are dynamic")
    prune.add_argument("file", type=Path, help=file_help)
    prune.add_argument(
        "--keep",
        metavar="REGEX",
        help="keep sizes dynamic only for inputs whose whole source (name in guards) matches REGEX: L..x.. matches L['x']",
    )
    prune.add_argument(
        "--drop",
        metavar="REGEX",
        help="make sizes static again, until they change, for inputs whose whole source (name in guards) matches REGEX",
    )
    prune.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write the profile to")

    explain = action("explain", _explain, "print the values that made sizes dynamic")
    explain.add_argument("file", type=Path, help="a profile that `dynx run --pgo` or pgo.record() wrote")
    explain.add_argument("source", nargs="?", help="explain only one input; its name in guards, L['x'], or just x")
    explain.add_argument("--dim", type=int, help="explain only this dimension of tensors, counted from 0")

    verify = action("verify", _verify, "compare the functions of a profile with the source files; exit code 1 if any differs")
    verify.add_argument("file", type=Path, help=file_help)

    apply = action("apply", _apply, "run a program with a profile, without a report")
    apply.usage = "dynx pgo apply FILE [-m | -c] program [arguments …]"
    apply.add_argument("file", type=Path, help=file_help)
    program.add_to(apply, before=1)


def load(path: Path) -> Profile:
    """Return the profile in a JSON file of dynx or a pickle of torch."""
    from dynx.pgo import Profile

    with path.open("rb") as file:
        is_pickle = file.read(1) == _PICKLE
    return Profile.from_pickle(path) if is_pickle else Profile.load(path)


def _dump(arguments: argparse.Namespace) -> int:
    profile = load(arguments.file)
    if arguments.json:
        print(profile.to_json(), end="")
    elif arguments.sources or arguments.dims:
        print(profile.to_dynamic_sources(dims=arguments.dims))
    else:
        show(profile)
    return 0


def _diff(arguments: argparse.Namespace) -> int:
    found = load(arguments.before).diff(load(arguments.after))
    show(found)
    return 1 if found else 0


def _merge(arguments: argparse.Namespace) -> int:
    first, *others = map(load, arguments.files)
    return _save(first.merge(*others), arguments.out)


def _prune(arguments: argparse.Namespace) -> int:
    profile = load(arguments.file)
    pruned = profile.prune(keep=arguments.keep, drop=arguments.drop)
    show(profile.diff(pruned))
    return _save(pruned, arguments.out)


def _explain(arguments: argparse.Namespace) -> int:
    show(load(arguments.file).explain(arguments.source, arguments.dim))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    found = load(arguments.file).verify()
    show(found)
    return 0 if all(match.state == "same" for match in found) else 1


def _apply(arguments: argparse.Namespace) -> Callable[[], int]:
    from dynx.symbols import install
    from dynx.symbols._install import active

    profile = load(arguments.file)
    load_code, module = program.prepare(
        arguments.target, arguments.rest, option=arguments.option, usage="dynx pgo apply profile.json train.py"
    )
    if active() is None:
        install()  # the names of symbols with which `dynx run --pgo` filled the caches
    profile.apply()
    return lambda: execute(load_code, module, None, is_module=arguments.option == "-m")


def _save(profile: Profile, path: Path) -> int:
    profile.save(path)
    print(f"saved: {path}")
    return 0
