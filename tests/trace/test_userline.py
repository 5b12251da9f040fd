"""Whose code a line is."""

from __future__ import annotations

import json
import sysconfig

import torch

import dynx
from dynx._torch.tracing.stack import RawFrame
from dynx._trace.user_location import call_site, chain_of, first_line, named, owner_of_file, user_location
from dynx.records import Location

TORCH = torch.nn.functional.__file__
LIBRARY = sysconfig.get_path("purelib") + "/transformers/modeling.py"
MINE = RawFrame("/home/me/train.py", 3, "main")


def test_owners():
    assert owner_of_file(TORCH) == ("torch", None)
    assert owner_of_file(dynx.__file__) == ("dynx", None)
    assert owner_of_file(json.__file__) == ("python", None)
    assert owner_of_file(LIBRARY) == ("library", "transformers")
    assert owner_of_file("<frozen importlib._bootstrap>") == ("python", None)
    assert owner_of_file("/home/me/train.py") == ("user", None)
    assert owner_of_file("<ipython-input-3-abc>") == ("user", None)
    assert owner_of_file("/tmp/ipykernel_12/345.py") == ("user", None)


def test_the_innermost_line_of_the_user_is_shown():
    stack = (MINE, RawFrame("/home/me/model.py", 7, "forward"), RawFrame(TORCH, 9, "relu"), RawFrame(json.__file__, 1, "x"))
    assert user_location(stack) == Location("/home/me/model.py", 7, "forward")


def test_a_library_line_names_the_users_line_that_called_it():
    stack = (MINE, RawFrame(LIBRARY, 40, "forward"), RawFrame(TORCH, 9, "relu"))
    found = user_location(stack)
    assert (found.library, found.line) == ("transformers", 40)
    assert found.caller == Location("/home/me/train.py", 3, "main")


def test_a_library_that_is_compiled_itself_is_called_from_the_call_site():
    """The traced stack then holds no line of the user."""
    site = Location("/home/me/train.py", 12, "main")
    assert user_location((RawFrame(LIBRARY, 40, "forward"),), site).caller == site
    assert user_location((RawFrame(TORCH, 40, "forward"),), site) == site


def test_methods_generated_into_a_string_are_nobodys_line():
    """dataclasses write `__init__` with exec; `python -c` programs have the same file name."""
    assert user_location((MINE, RawFrame("<string>", 4, "__init__"))) == Location("/home/me/train.py", 3, "main")
    assert user_location((RawFrame("<string>", 4, "main"),)) == Location("<string>", 4, "main")


def test_names_of_resume_functions_are_those_of_the_user():
    stack = (RawFrame("/home/me/model.py", 7, "torch_dynamo_resume_in_forward_at_7"),)
    assert user_location(stack).function == "forward"
    assert chain_of(stack)[0].function == "forward"


def test_the_call_site_is_this_line():
    assert call_site().function.endswith("test_the_call_site_is_this_line")


def test_a_function_is_named_with_its_class():
    def here():
        return call_site()

    found = here()
    plain = Location(found.file, found.line, "here")
    assert named(plain).function == "test_a_function_is_named_with_its_class.here"
    assert named(Location("/gone.py", 3, "f")).function == "f"


def test_the_first_line_of_a_decorated_function_is_its_def():
    @torch.compiler.disable(
        recursive=True,
    )
    def decorated():
        pass

    code = decorated.__wrapped__.__code__
    assert first_line(code) == code.co_firstlineno + 3
