from __future__ import annotations

import base64
import json
import logging
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from atgrpo.data.code import Apps, CodeContests, LiveCodeBench
from atgrpo.envs.code import CodeTeam
from atgrpo.envs.code_tests import Problem

ADD = "print(sum(map(int, input().split())))"


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def apps_row(question: str = "Add two numbers.", **columns: Any) -> dict[str, Any]:
    row = {
        "id": 0,
        "question": question,
        "solutions": json.dumps([ADD]),
        "input_output": json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}),
        "difficulty": "introductory",
        "url": "",
        "starter_code": "",
    }
    return row | columns


def packed(tests: list[dict[str, str]]) -> str:
    """As LiveCodeBench publishes its larger private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def live_row(title: str, day: str, **columns: Any) -> dict[str, Any]:
    row = {
        "question_title": title,
        "question_content": f"{title}: add two numbers.",
        "platform": "atcoder",
        "question_id": title,
        "contest_id": "c",
        "contest_date": f"{day}T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
        "private_test_cases": packed([{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]),
        "metadata": "{}",
    }
    return row | columns


def test_apps_programs_and_functions(tmp_path: Path) -> None:
    function = json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]})
    lists = json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3, 3]]})
    rows = [
        apps_row(),
        apps_row("two", input_output=function, solutions=json.dumps(["def add(a, b):\n\treturn a+b"])),
        apps_row("three", input_output=lists, starter_code="class Solution:\n    def add(self, a, b):",
                 solutions=json.dumps(["class Solution:\n    def add(self, a, b): return [a + b] * 2"])),
        apps_row("four", input_output=json.dumps({"inputs": [["1", "2"]], "outputs": [["3"]]})),
        apps_row("five", solutions=json.dumps(["print 1", ADD])),
    ]  # fmt: skip
    data = Apps(lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", [apps_row("held out")]))
    train = data.split("train")
    assert [s.id for s in train] == [f"train-{i}" for i in range(1, 6)]
    assert train[0].meta["tests"] == [["1 2\n", "3\n"], ["3 4\n", "7\n"]]
    assert (train[0].answer, train[0].meta["examples"]) == (ADD + "\n", [])
    assert train[1].meta["tests"] == [[[1, 2], 3], [[3, 4], 7]]
    assert train[1].prompt == "two\n\nThe function's name is add."
    assert train[2].meta["tests"] == [[[1, 2], [3, 3]]]
    assert train[2].prompt == "three\n\nStarter code:\n```python\nclass Solution:\n    def add(self, a, b):\n```"
    assert train[3].meta["tests"] == [["1\n2", "3"]]
    assert train[4].answer == ADD + "\n"
    assert [s.prompt for s in data.split("heldout")] == ["held out"]
    for sample in train:
        CodeTeam().reset(sample)


def test_unusable_rows_are_refused_and_counted_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    huge = '{"inputs": ["1"], "outputs": [' + "9" * 5000 + "]}"
    rows = [
        apps_row("a"),
        apps_row("b", input_output=""),
        apps_row("c", input_output=json.dumps({"inputs": [], "outputs": []})),
        apps_row("d", solutions=""),
        apps_row("e", solutions=json.dumps(["print 1"])),
        apps_row("f", input_output=huge),
    ]
    data = Apps(lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", [apps_row("g")]))
    with caplog.at_level(logging.WARNING):
        assert [s.prompt for s in data.split("train")] == ["a"]
    assert len(caplog.records) == 1
    assert (
        "refused 5 problems of train: 1 with input_output that is not JSON, 2 with no hidden tests, "
        "2 with no solution in Python 3"
    ) in caplog.text


def test_code_contests(tmp_path: Path) -> None:
    row = {
        "name": "1_A. Sum",
        "description": "Add two numbers.",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": ["3 4\n", "1 2\n"], "output": ["7\n", "3\n"]},
        "generated_tests": {"input": ["5 6\n", "3 4\n"], "output": ["11\n", "7\n"]},
        "source": 2,
        "difficulty": 7,
        "solutions": {"language": [2, 1, 3], "solution": ["int main() {}", "print 1", ADD]},
        "incorrect_solutions": {"language": [3], "solution": ["print(0)"]},
        "time_limit": {"seconds": 2, "nanos": 0},
    }
    other = row | {"description": "Only C++.", "solutions": {"language": [2], "solution": ["int main() {}"]}}
    held = row | {"description": "Held out."}
    data = CodeContests(lines(tmp_path / "a.jsonl", [row, other]), lines(tmp_path / "b.jsonl", [held]))
    (sample,) = data.split("train")
    assert sample.meta["tests"] == [["3 4\n", "7\n"], ["5 6\n", "11\n"]]
    assert sample.meta["examples"] == [["1 2\n", "3\n"]]
    assert sample.meta["reference"] == ADD + "\n"


def test_parquet_files_are_read_too(tmp_path: Path) -> None:
    import datasets

    for number, question in enumerate(("a", "b", "c")):
        table = datasets.Dataset.from_list([apps_row(question)])
        table.to_parquet(str(tmp_path / f"train-{number}.parquet"))
    held = lines(tmp_path / "b.jsonl", [apps_row("b")])
    assert [s.prompt for s in Apps(f"{tmp_path}/train-*.parquet", held).split("train")] == ["a", "c"]


def test_live_code_bench_is_split_by_date(tmp_path: Path) -> None:
    function = {
        "metadata": json.dumps({"func_name": "add"}),
        "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
        "public_test_cases": json.dumps([{"input": "1\n2", "output": "3", "testtype": "functional"}]),
        "private_test_cases": json.dumps([{"input": '[1]\n"x"', "output": "[null]", "testtype": "functional"}]),
    }
    rows = [
        live_row("old", "2023-05-07"),
        live_row("new", "2024-08-01", **function),
        live_row("newer", "2024-09-01", private_test_cases="[]"),
    ]
    data = LiveCodeBench(lines(tmp_path / "test.jsonl", rows), heldout_from="2024-08-01")
    (old,), (new,) = data.split("train"), data.split("heldout")
    assert (old.prompt, old.answer) == ("old: add two numbers.", "")
    assert (old.meta["tests"], old.meta["examples"]) == ([["5 6\n", "11\n"]], [["1 2\n", "3\n"]])
    assert new.meta["tests"] == [[[[1], "x"], [None]]]
    assert Problem.of(new).examples[0].given == "[1, 2]"
    assert new.prompt.endswith("def add(self, a: int, b: int) -> int:\n```")


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must not run",))


@pytest.mark.parametrize(
    "private",
    [
        base64.b64encode(zlib.compress(pickle.dumps(Harmful()))).decode(),
        base64.b64encode(zlib.compress(pickle.dumps(["a", 1]))).decode(),
        base64.b64encode(zlib.compress(b"\x80\x05")).decode(),
        base64.b64encode(b"no zlib").decode(),
        "no base64",
        '[{"input": "1"}]',
    ],
)
def test_private_tests_that_are_no_text_are_refused_and_run_nothing(
    private: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = [live_row("a", "2023-01-01"), live_row("b", "2023-01-01", private_test_cases=private),
            live_row("c", "2025-01-01")]  # fmt: skip
    data = LiveCodeBench(lines(tmp_path / "test.jsonl", rows), heldout_from="2024-08-01")
    assert [s.prompt[0] for s in data.split("train")] == ["a"]
    assert "with tests that cannot be read" in caplog.text
    assert capsys.readouterr().out == ""


def test_tests_are_few_short_and_spread(tmp_path: Path) -> None:
    inputs = [f"{i} 0\n" for i in range(10)] + ["9" * 99]
    tests = json.dumps({"inputs": inputs, "outputs": [f"{i}\n" for i in range(11)]})
    train = lines(tmp_path / "a.jsonl", [apps_row("a", input_output=tests)])
    held = lines(tmp_path / "b.jsonl", [apps_row("b")])
    (sample,) = Apps(train, held, max_tests=4, max_test_chars=20).split("train")
    assert [given for given, _ in sample.meta["tests"]] == ["0 0\n", "2 0\n", "5 0\n", "7 0\n"]
    with pytest.raises(ValueError, match="got no problem for 'heldout'"):
        Apps(train, held, max_test_chars=5).split("train")


def test_without_a_held_out_file_a_tenth_is_held_out_by_text(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [apps_row(f"q{i}") for i in range(200)] * 2)
    train, heldout = Apps(path).split("train"), Apps(path).split("heldout")
    assert len(train) + len(heldout) == 200
    assert 5 < len(heldout) < 40
    assert not {s.prompt for s in train} & {s.prompt for s in heldout}
    assert not {s.id for s in train} & {s.id for s in heldout}
    assert len(Apps(path, train_size=7).split("train")) == 7


def test_a_row_with_half_a_character_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    half = json.dumps({"inputs": ["1 2\n"], "outputs": ["\ud800"]})
    rows = [apps_row("a"), apps_row("\ud800b"), apps_row("c", input_output=half)]
    data = Apps(lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", [apps_row("g")]))
    assert [s.prompt for s in data.split("train")] == ["a"]
    assert "refused 2 problems of train: 2 with half a character in it" in caplog.text


def test_a_test_that_is_kept_can_be_read_by_the_judge(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_test_chars got 166667, expected at most 166666"):
        Apps("a.jsonl", max_test_chars=166_667)
    longest = json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": ["\x00" * 166_000]})
    row = apps_row("a", input_output=longest, solutions=json.dumps(["def f(n): return n"]))
    data = Apps(
        lines(tmp_path / "a.jsonl", [row]), lines(tmp_path / "b.jsonl", [apps_row("g")]), max_test_chars=166_666
    )
    CodeTeam().reset(data.split("train")[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"question": \n', r"a\.jsonl:1: not JSON"),
        ("\n[1]\n", r"a\.jsonl:2: got list, expected a JSON object"),
        ('{"input_output": ""}\n', "got no problem for 'heldout', expected at least one"),
    ],
)
def test_broken_files_are_one_clear_line(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        Apps(str(path)).split("train")


def test_a_missing_column_and_a_missing_file_are_named(tmp_path: Path) -> None:
    row = apps_row()
    del row["question"]
    with pytest.raises(ValueError, match=r"a\.jsonl: row 1 got no 'question', expected one of \['difficulty', 'id',"):
        Apps(lines(tmp_path / "a.jsonl", [row])).split("train")
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        Apps(str(tmp_path / "none.jsonl")).split("train")
    with pytest.raises(FileNotFoundError, match=r"none-\*\.jsonl"):
        Apps(str(tmp_path / "none-*.jsonl")).split("train")
    with pytest.raises(ValueError, match=r"files got .*a\.csv, expected a name that ends in \.jsonl or \.parquet"):
        Apps(str(tmp_path / "a.csv")).split("train")


def test_a_relative_path_starts_where_the_source_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(tmp_path / "a.jsonl", [apps_row("a"), apps_row("b")])
    monkeypatch.chdir(tmp_path)
    data = Apps("a.jsonl", "a.jsonl", heldout_size=1)
    monkeypatch.chdir("/")
    assert [s.prompt for s in data.split("train")] == ["b"]
