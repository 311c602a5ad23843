from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from atgrpo import scratch
from atgrpo.engines import weight_files
from atgrpo.engines.base import EngineError
from atgrpo.engines.weight_files import WeightFiles

SIZE = 1000
WEIGHTS = [("w", torch.arange(SIZE, dtype=torch.float32))]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Shared memory and the temporary folder."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(scratch, "SHARED_MEMORY", memory)
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(disk))
    return memory, disk


def test_a_file_holds_what_was_given_until_it_is_removed(places: tuple[Path, Path]) -> None:
    files = WeightFiles()
    first, second = Path(files.write(WEIGHTS)), Path(files.write(iter(WEIGHTS)))
    assert torch.equal(load_file(first)["w"], WEIGHTS[0][1])
    assert sorted(places[0].rglob("*.safetensors")) == sorted([first, second])
    files.remove(str(first))
    assert list(places[0].iterdir()) == [second.parent]
    files.close()
    files.close()
    assert list(places[0].iterdir()) == []


@pytest.mark.parametrize(("free", "place"), [(2**20, 1), (2**21, 0)])
def test_what_does_not_fit_in_shared_memory_goes_to_disk(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, free: int, place: int
) -> None:
    usage = weight_files.shutil.disk_usage(places[0])._replace(free=free)
    monkeypatch.setattr(weight_files.shutil, "disk_usage", lambda _: usage)
    files = WeightFiles()
    assert Path(files.write(WEIGHTS)).is_relative_to(places[place])
    files.close()


def test_without_shared_memory_the_disk_serves(places: tuple[Path, Path]) -> None:
    places[0].rmdir()
    files = WeightFiles()
    assert Path(files.write(WEIGHTS)).is_relative_to(places[1])
    files.close()


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_nothing(places: tuple[Path, Path]) -> None:
    files = WeightFiles()
    with pytest.raises(EngineError, match=r"weights of 0 MiB could not be written to .*memory.*: "):
        files.write([(7, torch.ones(1))])  # type: ignore[list-item]
    assert list(places[0].iterdir()) == []
