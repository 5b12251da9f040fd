"""Who owns a file (torch, dynx, a library, the user), and which line of a stack is shown to the user."""

from __future__ import annotations

import json
import sysconfig

import torch

import dynx
from dynx._reading.user_location import call_site, chain_of, first_line, named, owner_of_file, user_location
from dynx._torch.tracing.stack import RawFrame
from dynx.records import Location

TORCH = torch.nn.functional.__file__
LIBRARY = sysconfig.get_path("purelib") + "/transformers/modeling.py"
USER = RawFrame("/home/me/train.py", 3, "main")


def test_owner_of_a_file_is_torch_dynx_python_a_library_or_the_user():
    assert owner_of_file(TORCH) == ("torch", None)
    assert owner_of_file(dynx.__file__) == ("dynx", None)
    assert owner_of_file(json.__file__) == ("python", None)
    assert owner_of_file(LIBRARY) == ("library", "transformers")
    assert owner_of_file("<frozen importlib._bootstrap>") == ("python", None)
    assert owner_of_file("/home/me/train.py") == ("user", None)
    assert owner_of_file("<ipython-input-3-abc>") == ("user", None)
    assert owner_of_file("/tmp/ipykernel_12/345.py") == ("user", None)
    of_inductor = "/home/me/cache/36/c36jfx6sdb2zh4i24rzco7yfnjpf335zfeg4vibnytxca73ph5fs.py"
    assert owner_of_file(of_inductor) == ("torch", None)
    assert owner_of_file(of_inductor.replace("/36/", "/37/")) == ("user", None)


def test_package_in_a_folder_where_pip_installed_with_target_is_a_library(tmp_path, monkeypatch):
    (tmp_path / "vendored").mkdir()
    (tmp_path / "vendored-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert owner_of_file(str(tmp_path / "vendored" / "core.py")) == ("library", "vendored")


def test_user_location_is_the_innermost_line_of_the_users_code():
    stack = (USER, RawFrame("/home/me/model.py", 7, "forward"), RawFrame(TORCH, 9, "relu"), RawFrame(json.__file__, 1, "x"))
    assert user_location(stack) == Location("/home/me/model.py", 7, "forward")


def test_location_in_a_library_names_the_users_line_that_called_it():
    stack = (USER, RawFrame(LIBRARY, 40, "forward"), RawFrame(TORCH, 9, "relu"))
    location = user_location(stack)
    assert (location.library, location.line) == ("transformers", 40)
    assert location.caller == Location("/home/me/train.py", 3, "main")


def test_location_in_a_compiled_library_function_has_the_call_site_as_caller():
    """The stack that Dynamo traces then contains no line of the user."""
    site = Location("/home/me/train.py", 12, "main")
    assert user_location((RawFrame(LIBRARY, 40, "forward"),), site).caller == site
    assert user_location((RawFrame(TORCH, 40, "forward"),), site) == site


def test_user_location_skips_methods_that_dataclasses_generate():
    """dataclasses create `__init__` with exec; `python -c` programs have the same file name."""
    assert user_location((USER, RawFrame("<string>", 4, "__init__"))) == Location("/home/me/train.py", 3, "main")
    assert user_location((RawFrame("<string>", 4, "main"),)) == Location("<string>", 4, "main")


def test_location_in_a_resume_function_has_the_name_of_the_original_function():
    stack = (RawFrame("/home/me/model.py", 7, "torch_dynamo_resume_in_forward_at_7"),)
    assert user_location(stack).function == "forward"
    assert chain_of(stack)[0].function == "forward"


def test_call_site_is_the_line_that_the_program_is_running():
    assert call_site().function.endswith("test_call_site_is_the_line_that_the_program_is_running")


def test_call_site_has_the_columns_of_the_call():
    def here(*_):
        return call_site()

    def identity(value):
        return value

    site = identity(here(1, identity(2)))
    inner, text = "call_site()", "        return call_site()"
    assert (site.column, site.end_column) == (text.index(inner), len(text))


def test_location_gets_the_qualified_name_of_its_function():
    def here():
        return call_site()

    site = here()
    plain = Location(site.file, site.line, "here")
    assert named(plain).function == "test_location_gets_the_qualified_name_of_its_function.here"
    assert named(Location("/gone.py", 3, "f")).function == "f"


def test_first_line_of_a_decorated_function_is_its_def_line():
    @torch.compiler.disable(
        recursive=True,
    )
    def decorated():
        pass

    code = decorated.__wrapped__.__code__
    assert first_line(code) == code.co_firstlineno + 3
