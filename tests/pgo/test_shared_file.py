"""One profile file of many processes: nothing that a process saved is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.profiles import profile_of

from dynx.errors import BadProfile
from dynx.pgo import Profile
from dynx.pgo._shared_file import load_all, update
from dynx.records.profile import SourceProfile

WRITER = """
import sys
from pathlib import Path
from dynx.pgo import Profile
from dynx.pgo._shared_file import update
from dynx.records.profile import FrameProfile, SourceProfile
path, writer, merges = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(merges):
    frame = FrameProfile(f"/a/{writer}.py", f"{writer:08x}", "f", number + 1, sources={"L['x']": SourceProfile(size=(number,))})
    update(path, lambda profile: profile.merge(Profile((frame,), {f"{writer}-{number}": ""})))
"""


def one(line):
    return profile_of(SourceProfile(size=(line,)), file_hash=f"{line:08x}")


@pytest.mark.slow
def test_eight_processes_lose_nothing(tmp_path):
    path = tmp_path / "profile.json"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number), "20"]) for number in range(8)]
    assert [writer.wait(timeout=300) for writer in writers] == [0] * 8
    profile = Profile.load(path)
    assert len(profile.frames) == len(profile.runs) == 8 * 20
    assert sorted(os.listdir(tmp_path)) == ["profile.json"]


def test_no_lock_is_left_where_the_update_fails(tmp_path):
    path = tmp_path / "profile.json"
    with pytest.raises(ZeroDivisionError):
        update(path, lambda profile: 1 / 0)
    assert os.listdir(tmp_path) == []


def test_two_links_to_one_file_share_a_lock(tmp_path):
    """Jobs that reach the file by links of their own must not overwrite each other."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "link.json").symlink_to(tmp_path / "profile.json")
    paths = [tmp_path / name / "link.json" for name in ("a", "b")]
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n), "20"]) for n, path in enumerate(paths)]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0]
    assert len(Profile.load(tmp_path / "profile.json").frames) == 40
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "profile.json"]
    assert os.listdir(tmp_path / "a") == ["link.json"]


def test_no_folder_of_a_mistyped_path_is_created(tmp_path):
    for act in (load_all, lambda path: update(path, lambda profile: profile)):
        with pytest.raises(FileNotFoundError, match="chekpoints"):
            act(tmp_path / "chekpoints" / "profile.json")
    assert os.listdir(tmp_path) == []


def test_a_process_that_dies_holds_no_lock(tmp_path):
    path = tmp_path / "profile.json"
    dying = WRITER.replace("lambda profile: profile.merge", "lambda profile: __import__('os')._exit(3) or profile.merge")
    assert subprocess.run([sys.executable, "-c", dying, str(path), "0", "1"], check=False).returncode == 3
    update(path, lambda profile: profile.merge(one(1)))
    assert len(Profile.load(path).frames) == 1
    assert os.listdir(tmp_path) == ["profile.json"]


class TestWithoutLocks:
    @pytest.fixture(autouse=True)
    def no_locks(self, monkeypatch):
        import fcntl

        def flock(file, operation):
            raise OSError("locks are not supported")

        monkeypatch.setattr(fcntl, "flock", flock)

    def test_each_process_has_a_file_and_readers_merge_them(self, tmp_path):
        path = tmp_path / "profile.json"
        written = update(path, lambda profile: profile.merge(one(1)))
        assert written != path
        assert str(os.getpid()) in written.name
        written.rename(tmp_path / "profile.pid-other-host-7.json")
        update(path, lambda profile: profile.merge(one(2)))
        assert len(load_all(path).frames) == 2

    def test_a_process_adds_to_its_own_file(self, tmp_path):
        for line in (1, 2):
            update(tmp_path / "profile.json", lambda profile, line=line: profile.merge(one(line)))
        assert len(load_all(tmp_path / "profile.json").frames) == 2


def test_no_file_is_an_empty_profile(tmp_path):
    assert load_all(tmp_path / "profile.json") == Profile()


def test_a_file_of_something_else_is_left_as_it_is(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text("{}")
    with pytest.raises(BadProfile):
        update(path, lambda profile: profile.merge(one(1)))
    assert path.read_text() == "{}"


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "folder").write_text("")
    with pytest.raises(OSError, match="folder"):
        update(tmp_path / "folder" / "profile.json", lambda profile: profile.merge(one(1)))


def test_other_files_beside_it_are_not_read(tmp_path):
    for name in ("profile.old.json", "profile.gpt-2.json", "profile.pid-host.json", "other.pid-host-3.json"):
        (tmp_path / name).write_text("{}")
    assert load_all(Path(tmp_path / "profile.json")) == Profile()
