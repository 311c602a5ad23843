from __future__ import annotations

import json
import logging
from pathlib import Path

import datasets
import pytest

from atgrpo.data.files import HubDataset, JsonLines


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def rows(count: int, start: int = 0) -> list[dict[str, object]]:
    return [{"prompt": f"What is {i}+1?", "answer": str(i + 1), "level": i} for i in range(start, start + count)]


def test_two_files(tmp_path: Path) -> None:
    data = JsonLines(write(tmp_path / "a.jsonl", rows(3)), write(tmp_path / "b.jsonl", rows(2, start=9)))
    train, heldout = data.split("train"), data.split("heldout")
    assert [s.answer for s in train] == ["1", "2", "3"]
    assert [s.prompt for s in heldout] == ["What is 9+1?", "What is 10+1?"]
    assert dict(train[2].meta) == {"level": 2}
    assert len({s.id for s in (*train, *heldout)}) == 5


def test_a_fraction_is_held_out_by_text_so_doubles_stay_together(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*rows(200), *rows(200)])
    data = JsonLines(path, heldout_fraction=0.25)
    train, heldout = data.split("train"), data.split("heldout")
    assert len(train) + len(heldout) == 400
    assert 50 < len(heldout) < 150
    assert not {s.prompt for s in train} & {s.prompt for s in heldout}
    assert len({s.id for s in (*train, *heldout)}) == 400
    assert JsonLines(path, heldout_fraction=0.25).split("heldout") == heldout


def test_golds_in_other_dress(tmp_path: Path) -> None:
    answers = ["6*7 = 42\n#### 42", r"so \boxed{\frac{1}{2}}", 7, 0.5, "1,234"]
    path = write(tmp_path / "a.jsonl", [{"q": f"q{i}", "a": a} for i, a in enumerate(answers)])
    data = JsonLines(path, write(tmp_path / "b.jsonl", [{"q": "other", "a": "1"}]), prompt="q", answer="a")
    assert [s.answer for s in data.split("train")] == ["42", r"\frac{1}{2}", "7", "0.5", "1,234"]


def test_unscorable_golds_are_refused_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = [{"prompt": "p", "answer": "(1,2)"}, {"prompt": "q", "answer": "A"}]
    data = JsonLines(write(tmp_path / "a.jsonl", [*rows(3), *bad]), write(tmp_path / "b.jsonl", rows(1, start=9)))
    with caplog.at_level(logging.WARNING):
        assert len(data.split("train")) == 3
    assert len(caplog.records) == 1
    assert "refused 2 of 5 answers that cannot be judged, the first is '(1,2)'" in caplog.text


def test_only_unscorable_golds_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "p", "answer": "A"}, {"prompt": "q", "answer": "B"}])
    with pytest.raises(ValueError, match=r"a\.jsonl: none of the 2 answers can be judged, the first is 'A' at .*:1"):
        JsonLines(path, path).split("train")


def test_training_rows_that_are_held_out_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = JsonLines(write(tmp_path / "a.jsonl", rows(5)), write(tmp_path / "b.jsonl", rows(2)))
    with caplog.at_level(logging.WARNING):
        assert [s.answer for s in data.split("train")] == ["3", "4", "5"]
    assert "2 training samples are in the held-out split" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": "p", "answer": "1"}\n{"prompt": \n', r"a\.jsonl:2: not JSON"),
        ('{"prompt": "p", "answer": "1"}\n\n[1]\n', r"a\.jsonl:3: got list, expected a JSON object"),
        ('{"question": "p", "answer": "1"}\n', r"a\.jsonl:1: column got nothing in 'prompt', expected one of \["),
        ('{"prompt": "p", "answer": null}\n', r"a\.jsonl:1: column got nothing in 'answer'"),
        ('{"prompt": " ", "answer": "1"}\n', r"a\.jsonl:1: prompt got an empty text"),
        ('\n{"prompt": "half \\ud83d", "answer": "1"}\n', r"^\S*a\.jsonl:2: got half a character, '.ud83d'$"),
        ('{"prompt": "p", "answer": "1", "tests": ["\\udc00"]}\n', r"a\.jsonl:1: got half a character"),
        ("", r"no rows"),
    ],
)
def test_a_broken_line_says_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        JsonLines(path, path).split("train")


def test_a_character_that_json_writes_as_two_escapes_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "\\ud83d\\ude00", "answer": "1"}\n', encoding="utf-8")
    other = write(tmp_path / "b.jsonl", rows(1))
    assert JsonLines(path, other).split("train")[0].prompt == "\U0001f600"


def test_bytes_that_are_no_utf8_say_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"prompt": "p", "answer": "1"}\n{"prompt": "\xff", "answer": "1"}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl:2: not JSON"):
        JsonLines(path, path).split("train")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl: no such file"):
        JsonLines(tmp_path / "none.jsonl", heldout_fraction=0.5).split("train")


def test_a_relative_path_starts_where_the_object_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.jsonl", rows(40))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    data = JsonLines("a.jsonl", heldout_fraction=0.5)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(data.split("train")) + len(data.split("heldout")) == 40


def test_a_tenth_is_held_out_where_nothing_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rows(400))
    assert JsonLines(path).split("heldout") == JsonLines(path, heldout_fraction=0.1).split("heldout")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heldout": "b", "heldout_fraction": 0.5}, "expected at most one"),
        ({"heldout_fraction": 1.0}, "heldout_fraction got 1.0, expected a number between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JsonLines("a", **settings)  # type: ignore[arg-type]


def test_a_fraction_that_empties_a_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"heldout_fraction got 1e-06.*0 of 3 samples"):
        JsonLines(write(tmp_path / "a.jsonl", rows(3)), heldout_fraction=1e-6).split("train")


def test_a_dataset_saved_to_disk(tmp_path: Path) -> None:
    question = [{"question": f"q{i}", "answer": f"because\n#### {i}"} for i in range(6)]
    saved = datasets.DatasetDict(
        train=datasets.Dataset.from_list(question[:4]), test=datasets.Dataset.from_list(question[4:])
    )
    saved.save_to_disk(str(tmp_path / "saved"))
    data = HubDataset(str(tmp_path / "saved"), heldout="test")
    assert [s.answer for s in data.split("train")] == ["0", "1", "2", "3"]
    assert [s.prompt for s in data.split("heldout")] == ["q4", "q5"]
    with pytest.raises(ValueError, match=r"split got 'validation', expected one of \['test', 'train'\]"):
        HubDataset(str(tmp_path / "saved"), heldout="validation").split("train")
    with pytest.raises(ValueError, match=r"saved\[train\]:1: column got nothing in 'problem'"):
        HubDataset(str(tmp_path / "saved"), heldout="test", prompt="problem").split("train")


def test_a_folder_that_datasets_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "train.jsonl", rows(40))
    data = HubDataset(str(tmp_path / "folder"), heldout_fraction=0.5, prompt="prompt")
    assert len(data.split("train")) + len(data.split("heldout")) == 40


def test_answers_that_are_words_or_missing_are_taken_as_they_stand_where_wanted(tmp_path: Path) -> None:
    file = tmp_path / "words.jsonl"
    file.write_text('{"prompt": "a", "answer": " (1,2) "}\n{"prompt": "b"}\n{"prompt": "c", "answer": "#### 7"}\n')
    data = JsonLines(file, write(tmp_path / "other.jsonl", rows(1)), scorable_only=False)
    assert [sample.answer for sample in data.split("train")] == ["(1,2)", "", "#### 7"]
