"""Coding problems from APPS, CodeContests and LiveCodeBench, read from the files that their hubs publish."""

from __future__ import annotations

import json
import logging
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from atgrpo.data.base import Split, TaskData, check_size, check_split
from atgrpo.data.code_formats import Row, UnusableRowError, apps, code_contests, live_code_bench
from atgrpo.data.small_programs import sample_of
from atgrpo.envs.code_tests import MAX_EXPECTED
from atgrpo.extras import optional
from atgrpo.types import Sample

logger = logging.getLogger(__name__)

HELDOUT_SHARE = 10
"""One problem in so many is held out where no file of held-out problems is named."""
MOST_TEST_CHARS = MAX_EXPECTED // 6
"""JSON writes a character with six at most."""


class _Problems(TaskData):
    """Rows of published files. One without usable tests is refused; how many were is said in one line a split."""

    need_reference = True
    """Refuse rows without a reference solution, too."""

    def __init__(
        self,
        train: str,
        heldout: str | None,
        train_size: int | None,
        heldout_size: int | None,
        max_tests: int,
        max_test_chars: int,
    ) -> None:
        for field, size in (("train_size", train_size), ("heldout_size", heldout_size)):
            if size is not None:
                check_size(field, size)
        check_size("max_tests", max_tests)
        check_size("max_test_chars", max_test_chars)
        if max_test_chars > MOST_TEST_CHARS:
            raise ValueError(f"max_test_chars got {max_test_chars}, expected at most {MOST_TEST_CHARS}")
        # Absolute at once: the run may change its folder before the file is read.
        self._files = {"train": _absolute(train), "heldout": None if heldout is None else _absolute(heldout)}
        self._sizes = {"train": train_size, "heldout": heldout_size}
        self._max_tests, self._max_test_chars = max_tests, max_test_chars
        self._splits: dict[str, tuple[Sample, ...]] = {}

    @staticmethod
    @abstractmethod
    def _problem(row: Row) -> tuple[str, dict[str, Any]]:
        """Prompt and meta."""

    def _half(self, prompt: str, row: Row) -> Split:
        """Which split a row belongs to where one set of files holds both."""
        return "heldout" if zlib.crc32(prompt.encode("utf-8", "replace")) % HELDOUT_SHARE == 0 else "train"

    def split(self, name: Split) -> Sequence[Sample]:
        """The problems of one split, read on the first call; no text stands in both, none twice."""
        check_split(name)
        if name not in self._splits:
            taken = {sample.prompt for sample in self.split("heldout")} if name == "train" else set()
            self._splits[name] = self._load(name, taken)
        return self._splits[name]

    def _load(self, name: Split, taken: set[str]) -> tuple[Sample, ...]:
        own = self._files[name]
        pattern = own or self._files["train"]
        assert pattern is not None
        alone = self._files["heldout"] is None
        samples: list[Sample] = []
        refused: Counter[str] = Counter()
        for number, row in enumerate(_rows(pattern), 1):
            try:
                prompt, meta = self._problem(row)
                if self.need_reference and "reference" not in meta:
                    raise UnusableRowError("no solution in Python 3")
                meta["tests"] = self._selected(meta["tests"])
                _check_text(prompt, meta)
            except UnusableRowError as error:
                refused[str(error)] += 1
                continue
            except KeyError as error:
                raise ValueError(f"{pattern}: row {number} got no {error}, expected one of {sorted(row)}") from None
            if prompt in taken or (alone and self._half(prompt, row) != name):
                continue
            taken.add(prompt)
            samples.append(sample_of(f"{name}-{number}", prompt, meta))
            if len(samples) == self._sizes[name]:
                break
        if refused:
            reasons = ", ".join(f"{count} with {reason}" for reason, count in sorted(refused.items()))
            logger.warning("%s: refused %d problems of %s: %s", pattern, refused.total(), name, reasons)
        if not samples:
            raise ValueError(f"{pattern}: got no problem for {name!r}, expected at least one")
        return tuple(samples)

    def _selected(self, tests: list[list[Any]]) -> list[list[Any]]:
        """At most ``max_tests``, spread evenly, none over ``max_test_chars``."""
        short = [pair for pair in tests if len(str(pair[0])) + len(str(pair[1])) <= self._max_test_chars]
        if not short:
            raise UnusableRowError("no hidden test that is short enough")
        count = min(len(short), self._max_tests)
        return [short[i * len(short) // count] for i in range(count)]


class Apps(_Problems):
    """APPS (arXiv:2105.09938).

    Args:
        train: File of the training problems: a path or an ``hf://`` address, ``.jsonl`` or ``.parquet``; ``*`` in it
            stands for several files. A relative path starts from the current folder.
        heldout: The same for the held-out problems; None: a tenth of ``train``, chosen by a hash of the text.
        train_size: Most problems in ``train``; None for all. Files are read as far as needed.
        heldout_size: Most problems in ``heldout``.
        max_tests: Most hidden tests of a problem, spread evenly over those published.
        max_test_chars: Longer tests (input and output together) are left out.
    """

    def __init__(
        self,
        train: str,
        heldout: str | None = None,
        train_size: int | None = None,
        heldout_size: int | None = None,
        max_tests: int = 20,
        max_test_chars: int = 50_000,
    ) -> None:
        super().__init__(train, heldout, train_size, heldout_size, max_tests, max_test_chars)

    _problem = staticmethod(apps)


class CodeContests(Apps):
    """CodeContests (arXiv:2203.07814); settings as in ``Apps``."""

    _problem = staticmethod(code_contests)


class LiveCodeBench(_Problems):
    """LiveCodeBench (arXiv:2403.07974). It publishes no solutions, so a tester's own reward is missing here.

    Args:
        files: Its files, as ``train`` of ``Apps``.
        heldout_from: Problems of this day (``2024-08-01``) and later are held out, those before are for training:
            nothing that was published later is trained on.
        train_size: As in ``Apps``.
        heldout_size: As in ``Apps``.
        max_tests: As in ``Apps``.
        max_test_chars: As in ``Apps``.
    """

    need_reference = False

    def __init__(
        self,
        files: str,
        heldout_from: str,
        train_size: int | None = None,
        heldout_size: int | None = None,
        max_tests: int = 20,
        max_test_chars: int = 50_000,
    ) -> None:
        super().__init__(files, None, train_size, heldout_size, max_tests, max_test_chars)
        self._heldout_from = date.fromisoformat(heldout_from)

    _problem = staticmethod(live_code_bench)

    def _half(self, prompt: str, row: Row) -> Split:
        day = date.fromisoformat(str(row["contest_date"])[:10])
        return "heldout" if day >= self._heldout_from else "train"


def _check_text(prompt: str, meta: dict[str, Any]) -> None:
    try:
        json.dumps([prompt, meta], ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can spell it, no tokenizer reads it
        raise UnusableRowError("half a character in it") from None


def _absolute(pattern: str) -> str:
    return pattern if "://" in pattern else str(Path(pattern).expanduser().absolute())


def _rows(pattern: str) -> Iterator[Row]:
    """The rows of all files, in the order of their names, one by one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not a JSON object, or the files are of another kind.
    """
    kind = pattern.rpartition(".")[2]
    if kind not in ("jsonl", "parquet"):
        raise ValueError(f"files got {pattern}, expected a name that ends in .jsonl or .parquet")
    if kind == "parquet":
        datasets = optional("datasets")

        yield from datasets.load_dataset("parquet", data_files=pattern, split="train", streaming=True)
        return
    import fsspec

    files = fsspec.open_files(pattern, "rt", encoding="utf-8-sig")
    if not files:
        raise FileNotFoundError(f"{pattern}: no such file")
    for file in files:
        with file as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _row(line, f"{file.path}:{number}")


def _row(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"{place}: got {type(row).__name__}, expected a JSON object")
    return row
