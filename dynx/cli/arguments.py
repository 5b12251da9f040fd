"""Parse the command line: separate the arguments of dynx from those of the program that it runs, and report wrong arguments."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

_STDIN = "-"


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors show the usage of the subcommand, and suggest the most similar command or option.

    Options cannot be abbreviated, since a short form may be an option of the program that dynx runs.
    """

    before_program: int | None = None  # number of positional arguments before the program; None if there is no program

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments. Report unknown ones with the usage of the subcommand; argparse would show the usage of `dynx`."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return known, unknown

    @property
    def commands(self) -> dict[str, Parser]:
        """The parsers of the subcommands, by name."""
        actions = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return {name: parser for action in actions for name, parser in action.choices.items()}

    def takes_value(self, option: str) -> bool:
        """Return whether `option` takes the next word of the command line as its value."""
        action = self._option_string_actions.get(option)
        return action is not None and action.nargs is None

    def has_option(self, word: str) -> bool:
        """Return whether a word is a long option of this command, such as `--out` or `--out=run.dynx`, other than `--help`."""
        name = word.partition("=")[0]
        return name.startswith("--") and name != "--help" and name in self._option_string_actions

    def _refuse(self, word: str) -> NoReturn:
        if not word.startswith("-"):
            self.error(f"unexpected argument {word}")
        name = word.partition("=")[0]
        self.error(f"unknown option {name}{_suggestion(name, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            hint = _suggestion(value, action.choices, f"{self.prog} ")
            if not hint and self.commands.get("run") and (value.endswith(".py") or os.path.exists(value)):
                hint = f"\n  to run a program: {self.prog} run {shlex.quote(value)}"
            self.error(f"{self.prog} has no command {value}{hint or f'{_NEXT}{self.prog} --help lists them'}")
        super()._check_value(action, value)


_NEXT = "\n  "


def _suggestion(word: str, choices: Any, before: str = "") -> str:
    close = difflib.get_close_matches(word, list(choices), n=1)
    return f"{_NEXT}did you mean {before}{close[0]}?" if close else ""


class Split(NamedTuple):
    """A command line, split into the arguments of dynx (up to the program) and the arguments of the program."""

    parser: Parser  # of the command
    own: list[str]  # arguments for the parser
    rest: list[str]  # arguments for the program, even `--out`
    program: str = ""  # as the user wrote it


def split(parser: Parser, argv: Sequence[str]) -> Split:
    """Split the command line into the arguments of dynx and those of the program that the command runs, if any.

    `--` is inserted before the program: otherwise, argparse would read code that begins with a dash (`-c "-x"`) as an option.
    """
    words = list(argv)
    position = 0
    while position < len(words) and words[position] in parser.commands:
        parser, position = parser.commands[words[position]], position + 1
    if parser.before_program is None:
        return Split(parser, words, [])
    options, arguments = words[:position], list[str]()
    while position < len(words) and len(arguments) <= parser.before_program:
        word = words[position]
        if word == "--":
            arguments += words[position + 1 : position + 2 + parser.before_program - len(arguments)]
            position += 1 + parser.before_program
        elif word.startswith("-") and word != _STDIN and not word.startswith(f"{_STDIN}::"):
            options += words[position : position + 1 + parser.takes_value(word)]
            position += parser.takes_value(word)
            if word == "-c":
                arguments += words[position + 1 : position + 2]
                position += 1
        else:
            arguments.append(word)
        position += 1
    own = [*options, *(["--", *arguments] if arguments else [])]
    return Split(parser, own, words[position:], arguments[-1] if len(arguments) > parser.before_program else "")


def misplaced(found: Split) -> str:
    """Return a note on options of dynx that stand after the program and so are passed to it; empty if there are none."""
    words = list(_misplaced(found))
    if not words:
        return ""
    command, options = found.parser.prog, shlex.join(words)
    kind = next((f"{word} " for word in ("-m", "-c") if word in found.own), "")
    example = f"{command} {options} {kind}{'…' if kind == '-c ' else shlex.quote(found.program)}"
    return f"{options} is passed to the program, since options of {command} stand before it: {example}"


def _misplaced(found: Split) -> Iterator[str]:
    for position, word in enumerate(found.rest):
        if word == "--":
            return
        if found.parser.has_option(word):
            yield word
            if "=" not in word and found.parser.takes_value(word):
                yield from found.rest[position + 1 : position + 2]
