from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from atgrpo import scratch
from atgrpo.scratch import PREFIX, ScratchFolder, remove_leftovers

ROOT = Path(__file__).parents[1]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Shared memory and the temporary folder."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(scratch, "SHARED_MEMORY", memory)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(disk))
    return memory, disk


def test_a_folder_is_removed_with_its_object_or_before(places: tuple[Path, Path]) -> None:
    kept, passing = ScratchFolder("kept", places[1]), ScratchFolder("passing", places[0])
    with passing as folder:
        (folder / "file").touch()
    passing.remove()
    assert [path.name for path in places[0].iterdir()] == []
    assert list(places[1].iterdir()) == [kept.path]
    del kept
    assert list(places[1].iterdir()) == []


def test_leftovers_of_the_dead_are_removed_and_folders_in_use_or_of_others_are_not(places: tuple[Path, Path]) -> None:
    for place in places:
        for name in (f"{PREFIX}weights-1-dead", "atgrpo-mine"):
            (place / name).mkdir()
            (place / name / "file").touch()
        (place / f"{PREFIX}weights-1-young").mkdir()
        (place / f"{PREFIX}weights-1-file").touch()
    with ScratchFolder("adapter", places[0]) as living:
        (living / "file").touch()
        remove_leftovers()
        kept = {f"{PREFIX}weights-1-young", f"{PREFIX}weights-1-file", "atgrpo-mine"}
        assert {path.name for path in places[1].iterdir()} == kept
        assert {path.name for path in places[0].iterdir()} == {*kept, living.name}


def test_what_a_killed_process_left_is_removed_by_the_next_one(places: tuple[Path, Path]) -> None:
    code = (
        "import pathlib, sys, time; from atgrpo.scratch import ScratchFolder; "
        "folder = ScratchFolder('adapter', pathlib.Path(sys.argv[1])); (folder.path / 'file').touch(); "
        "print(flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, places[1]], cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    remove_leftovers()
    assert len(list(places[1].iterdir())) == 1
    child.send_signal(signal.SIGKILL)
    child.wait()
    remove_leftovers()
    assert list(places[1].iterdir()) == []
