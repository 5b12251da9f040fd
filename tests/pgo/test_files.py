"""Profiles in files: what is written is read again, and whatever else a file contains is refused without being run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections import defaultdict

import pytest
import torch
from hypothesis import given
from support.profiles import profile_of, profiles
from torch._dynamo import pgo as torch_pgo

from dynx.errors import BadProfile
from dynx.pgo import Profile, _json
from dynx.records.profile import DYNAMIC, FrameProfile, Seen, SourceProfile

GOOD = profile_of(
    SourceProfile(DYNAMIC, (2, DYNAMIC), ("size(1)*stride(1)", 1), (Seen(1, 4, "A", "0/0"), Seen(1, 6, "A", "0/1")))
)


class TestRoundTrip:
    @pytest.mark.slow
    @given(profiles)
    def test_a_profile_is_read_as_it_was_written(self, profile):
        read = _json.read(profile.to_json().encode())
        assert (read.frames, read.runs, read.torch) == (profile.frames, profile.runs, profile.torch)

    def test_a_file_is_read_as_it_was_written(self, tmp_path):
        GOOD.save(tmp_path / "profile.json")
        assert Profile.load(tmp_path / "profile.json") == GOOD
        assert os.listdir(tmp_path) == ["profile.json"]

    @pytest.mark.slow
    @given(profiles)
    def test_a_number_that_is_no_size_may_be_negative_or_a_float(self, profile):
        """`k=-1` and `lr=0.1` are arguments that torch makes dynamic as well."""
        numbers = SourceProfile(-1, DYNAMIC, DYNAMIC, (Seen(None, -1, "A", "0/0"), Seen(None, 0.5, "A", "0/1")))
        with_numbers = profile.merge(profile_of(numbers))
        assert _json.read(with_numbers.to_json().encode()).frames == with_numbers.frames

    def test_no_folder_of_a_mistyped_path_is_created(self, tmp_path):
        """A profile in a folder that nobody looks in is lost knowledge; the error names the folder."""
        with pytest.raises(FileNotFoundError) as raised:
            GOOD.save(tmp_path / "chekpoints" / "profile.json")
        assert raised.value.filename == str(tmp_path / "chekpoints")
        assert os.listdir(tmp_path) == []

    def test_a_link_stays_a_link(self, tmp_path):
        (tmp_path / "link.json").symlink_to(tmp_path / "shared.json")
        GOOD.save(tmp_path / "link.json")
        assert (tmp_path / "link.json").is_symlink()
        assert Profile.load(tmp_path / "shared.json") == GOOD

    def test_a_long_name(self, tmp_path):
        GOOD.save(tmp_path / f"{'n' * 240}.json")
        assert Profile.load(tmp_path / f"{'n' * 240}.json") == GOOD

    def test_fields_of_a_newer_dynx_are_kept(self, tmp_path):
        data = json.loads(GOOD.to_json())
        data["colour"], data["frames"][0]["weight"] = "red", [1]
        (tmp_path / "p.json").write_text(json.dumps(data))
        Profile.load(tmp_path / "p.json").save(tmp_path / "q.json")
        written = json.loads((tmp_path / "q.json").read_text())
        assert (written["colour"], written["frames"][0]["weight"]) == ("red", [1])

    def test_a_file_that_cannot_be_written_is_as_before(self, tmp_path, monkeypatch):
        path = tmp_path / "profile.json"
        GOOD.save(path)
        monkeypatch.setattr("pathlib.Path.replace", lambda self, target: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            Profile().save(path)
        monkeypatch.undo()
        assert Profile.load(path) == GOOD
        assert os.listdir(tmp_path) == ["profile.json"]

    def test_a_thousand_functions_load_without_torch(self, tmp_path):
        source, path = GOOD.frames[0].sources["L['x']"], str(tmp_path / "p.json")
        sources = {f"L['{name}']": source for name in "abcd"}
        Profile(tuple(FrameProfile(f"/a/{n}.py", f"{n:08x}", "f", 3, sources=sources) for n in range(1000))).save(path)
        program = f"from dynx import pgo; import sys; print(len(pgo.Profile.load({path!r}).frames), 'torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "1000 False\n"


def changed(path, value):
    """The JSON of a good profile with one part replaced; a path that ends with `del` deletes it."""
    data = json.loads(GOOD.to_json())
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(data).encode()


FRAME = ("frames", 0)
SOURCE = (*FRAME, "sources", "L['x']")
TEXT = GOOD.to_json().encode()
BAD_JSON = {
    "empty": b"",
    "no JSON": b"profile",
    "no object": b"[]",
    "null": b"null",
    "binary": b"\xff\xfe\x00",
    "a run file": b'{"type": "header", "dynx_run": 1}\n',
    "other JSON": b'{"frames": []}',
    "too deep": b'{"dynx_profile": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "truncated at half": TEXT[: len(TEXT) // 2],
    "truncated at the end": TEXT[:-3],
    "twice": TEXT + TEXT,
    "a newer schema": changed(("dynx_profile",), 2),
    "schema true": changed(("dynx_profile",), [1]),
    "no frames": json.dumps({"dynx_profile": 1}).encode(),
    "frames as object": changed(("frames",), {}),
    "a frame as list": changed(FRAME, []),
    "no file": changed((*FRAME, "file"), None),
    "a file as number": changed((*FRAME, "file"), 3),
    "a long file": changed((*FRAME, "file"), "a" * 20_000),
    "a line as text": changed((*FRAME, "line"), "3"),
    "a line as bool": changed((*FRAME, "line"), True),
    "a negative line": changed((*FRAME, "line"), -1),
    "a huge line": changed((*FRAME, "line"), 10**40),
    "a closure as number": changed((*FRAME, "closure"), 3),
    "a closure as word": changed((*FRAME, "closure"), "xyz"),
    "a closure that Python would read": changed((*FRAME, "closure"), " 0x1_f"),
    "a long closure": changed((*FRAME, "closure"), "f" * 5000),
    "sources as list": changed((*FRAME, "sources"), []),
    "a source as list": changed(SOURCE, []),
    "a scalar as list": changed((*SOURCE, "scalar"), [1]),
    "a scalar as bool": changed((*SOURCE, "scalar"), True),
    "a scalar as code": changed((*SOURCE, "scalar"), "__import__('os').system('true')"),
    "a size as number": changed((*SOURCE, "size"), 3),
    "a size as object": changed((*SOURCE, "size"), {"0": 1}),
    "a huge size": changed((*SOURCE, "size"), [2**64]),
    "a negative size": changed((*SOURCE, "size"), [2, -1]),
    "a float as size": changed((*SOURCE, "size"), [2, 4.0]),
    "a float as stride": changed((*SOURCE, "stride"), [6.5, 1]),
    "a negative stride": changed((*SOURCE, "stride"), [-6, 1]),
    "more strides than sizes": changed((*SOURCE, "stride"), [6, 3, 1]),
    "a stride of a dim that the tensor lacks": changed((*SOURCE, "stride"), ["size(2)*stride(2)", 1]),
    "a negative value of a size": changed((*SOURCE, "seen"), [[1, -4, "A", "0/0"]]),
    "a float as value of a size": changed((*SOURCE, "seen"), [[1, 4.0, "A", "0/0"]]),
    "a value that is no size": changed((*SOURCE, "seen"), [[1, "nan", "A", "0/0"]]),
    "sizes of sizes": changed((*SOURCE, "size"), [[1]]),
    "too many dims": changed((*SOURCE, "size"), [1] * 65),
    "a stride as text": changed((*SOURCE, "stride"), ["s"]),
    "a stride of a dim that is none": changed((*SOURCE, "stride"), ["size(99)*stride(99)"]),
    "values as object": changed((*SOURCE, "seen"), {}),
    "a value of three parts": changed((*SOURCE, "seen"), [[0, 4, "A"]]),
    "a dynamic value": changed((*SOURCE, "seen"), [[0, DYNAMIC, "A", "0/0"]]),
    "a value of a dim as text": changed((*SOURCE, "seen"), [["0", 4, "A", "0/0"]]),
    "graphs as object": changed((*FRAME, "graphs"), {}),
    "a graph as list": changed((*FRAME, "graphs"), [[]]),
    "a size of a graph as number": changed((*FRAME, "graphs"), [{"L['x']": [4]}]),
    "a size of a graph with four parts": changed((*FRAME, "graphs"), [{"L['x']": [[0, 2, 3, 4]]}]),
    "a negative size of a graph": changed((*FRAME, "graphs"), [{"L['x']": [[0, -4]]}]),
    "a float as size of a graph": changed((*FRAME, "graphs"), [{"L['x']": [[0, 4.0]]}]),
    "a bound as text": changed((*FRAME, "graphs"), [{"L['x']": [[0, "2", None]]}]),
    "a size of a graph without value": changed((*FRAME, "graphs"), [{"L['x']": [[0, None]]}]),
    "a number of a graph as list": changed((*FRAME, "graphs"), [{"L['k']": [[None, [1]]]}]),
    "a number of a graph as code": changed((*FRAME, "graphs"), [{"L['k']": [[None, "dynamic"]]}]),
    "a dim of a graph as text": changed((*FRAME, "graphs"), [{"L['x']": [["0", 4]]}]),
    "runs as list": changed(("runs",), []),
    "a run as number": changed(("runs",), {"A": 3}),
    "torch as text": changed(("torch",), "2.13.0"),
    "infinity": TEXT.replace(b'"size": [2', b'"size": [Infinity'),
    "not a number": TEXT.replace(b'"size": [2', b'"size": [NaN'),
}


class Calls:
    """Pickled, it calls a function when a reader that trusts the file loads it."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def state_of(**changes):
    """A pickled profile of torch with changed attributes of its entry or code."""
    code = torch_pgo.CodeId("/a/model.py", 3, "f", "00000001")
    entry = torch_pgo.FrameStateSizeEntry(torch_pgo.auto_dynamic, (2, torch_pgo.auto_dynamic), (torch_pgo.InferStride(1), 1))
    for name, value in changes.items():
        object.__setattr__(code if hasattr(code, name) else entry, name, value)
    state = defaultdict(torch_pgo.CodeState)
    state[code].automatic_dynamic["L['x']"] = entry
    return state


def pickled(**changes):
    return pickle.dumps(state_of(**changes))


def bad_pickles(marker):
    good = pickled()
    touch = Calls(os.system, f"touch {marker}")
    return {
        "os.system": pickle.dumps(touch),
        "os.system, protocol 0": pickle.dumps(touch, protocol=0),
        "os.system as a size": pickled(size=touch),
        "os.system in a tuple": pickled(size=(touch,)),
        "eval": pickle.dumps(Calls(eval, f"open({str(marker)!r}, 'w')")),
        "eval as a name": pickled(name=Calls(eval, f"open({str(marker)!r}, 'w')")),
        "subprocess": pickle.dumps(Calls(subprocess.call, ["touch", str(marker)])),
        "getattr": pickle.dumps(Calls(getattr, torch_pgo.CodeId, "make")),
        "a function of torch.pgo": pickle.dumps({1: torch_pgo.reset_code_state}),
        "another class": pickle.dumps(torch.nn.Linear(2, 2)),
        "a tensor": pickle.dumps(torch.ones(3)),
        "a list": pickle.dumps([1, 2]),
        "a dict of numbers": pickle.dumps({1: 2}),
        "a set": pickle.dumps({1, 2}),
        "None": pickle.dumps(None),
        "a class of torch.pgo": pickle.dumps(torch_pgo.CodeId),
        "truncated": good[: len(good) // 2],
        "truncated before the end": good[:-1],
        "empty": b"",
        "JSON": GOOD.to_json().encode(),
        "a changed opcode": good.replace(b"R", b"\x82\x01", 1),
        "a name as number": pickled(name=3),
        "a line as text": pickled(firstlineno="3"),
        "a size as list": pickled(size=[1, 2]),
        "a size of lists": pickled(size=([1],)),
        "a size as text": pickled(size=("dynamic",)),
        "a size as bool": pickled(size=(True,)),
        "a negative size": pickled(size=(-2, 1)),
        "a float as size": pickled(size=(2.0, 1)),
        "a negative stride": pickled(stride=(-1, 1)),
        "a huge size": pickled(size=(2**80,)),
        "a stride of a huge dim": pickled(stride=(torch_pgo.InferStride(10**6),)),
        "a stride of text": pickled(stride=(torch_pgo.InferStride("x"),)),
        "no automatic_dynamic": pickle.dumps({torch_pgo.CodeId("/a", 1, "f", "0"): 3}),
        "an object number of gigabytes": b"\x80\x02}r\xff\xff\xff\xff.",
        "a string of gigabytes": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x00abc.",
        "a bytearray of gigabytes": b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00abc.",
        "a number of kilobytes": b"\x80\x04\x8b\x00\x04\x00\x00" + b"\x01" * 1024 + b".",
        "only a mark": b"\x80\x04(.",
        "nothing on the stack": b"\x80\x04.",
        "a persistent object": b"\x80\x02Pfile\n.",
        "an extension": b"\x80\x02\x82\x01.",
    }


class TestBadFiles:
    @pytest.mark.parametrize("name", BAD_JSON)
    def test_bad_json_is_refused(self, name, tmp_path):
        path = tmp_path / "profile.json"
        path.write_bytes(BAD_JSON[name])
        with pytest.raises(BadProfile) as raised:
            Profile.load(path)
        first, advice = str(raised.value).split("\n")
        assert first.startswith(f"{path} is not a profile: ")
        assert len(str(raised.value)) < 400 + len(str(path))
        assert advice.strip()

    @pytest.mark.parametrize("name", bad_pickles("x"))
    def test_a_bad_pickle_is_refused_and_nothing_of_it_runs(self, name, tmp_path):
        marker, path = tmp_path / "ran", tmp_path / "code_state.pkl"
        path.write_bytes(bad_pickles(marker)[name])
        began = time.monotonic()
        with pytest.raises(BadProfile) as raised:
            Profile.from_pickle(path)
        assert not marker.exists()
        assert str(raised.value).startswith(f"{path} is not a profile of torch: ")
        assert time.monotonic() - began < 60  # it neither reads nor allocates gigabytes

    def test_torch_runs_what_a_pickle_names(self, tmp_path, monkeypatch):
        """Why `from_pickle` exists."""
        marker = tmp_path / "ran"
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        with torch.compiler.config.patch(job_id="job"):
            path = torch_pgo.code_state_path(torch_pgo.get_cache_key())
            os.makedirs(os.path.dirname(path))
            with open(path, "wb") as file:
                file.write(bad_pickles(marker)["os.system as a size"])
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
        assert marker.exists()

    def test_a_pickle_in_place_of_json_names_the_right_function(self, tmp_path):
        (tmp_path / "p").write_bytes(pickled())
        with pytest.raises(BadProfile, match="from_pickle"):
            Profile.load(tmp_path / "p")

    def test_a_file_that_is_too_large(self, tmp_path, monkeypatch):
        monkeypatch.setattr("dynx.pgo._pickled.MAX_BYTES", 100)
        monkeypatch.setattr("dynx.pgo._json.MAX_BYTES", 100)
        GOOD.save(tmp_path / "p.json")
        (tmp_path / "p.pkl").write_bytes(pickled())
        with pytest.raises(BadProfile, match="at most 100"):
            Profile.load(tmp_path / "p.json")
        with pytest.raises(BadProfile, match="at most 100"):
            Profile.from_pickle(tmp_path / "p.pkl")

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Profile.load(tmp_path / "p.json")


class TestFromPickle:
    @pytest.mark.parametrize("protocol", [2, 3, 4, 5])
    def test_a_profile_of_torch_is_read(self, tmp_path, protocol):
        (tmp_path / "p.pkl").write_bytes(pickle.dumps(state_of(), protocol=protocol))
        (frame,) = Profile.from_pickle(tmp_path / "p.pkl").frames
        assert (frame.file, frame.line, frame.name, frame.file_hash) == ("/a/model.py", 3, "f", "00000001")
        assert frame.sources == {"L['x']": SourceProfile(DYNAMIC, (2, DYNAMIC), ("size(1)*stride(1)", 1))}

    def test_a_file_that_torch_wrote_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        with torch.compiler.config.patch(job_id="job"):
            compiled = torch.compile(lambda x, k: x * k, backend="eager")
            for size in (3, 4):
                compiled(torch.ones(2, size), size + 0.5)
            path = torch_pgo.code_state_path(torch_pgo.get_cache_key())
        assert Profile.from_pickle(path).frames == Profile.capture().frames
