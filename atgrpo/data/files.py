"""Your own problems: JSON lines, or anything ``datasets`` can load."""

from __future__ import annotations

import json
import logging
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atgrpo.data.base import Split, TaskData, check_split, scorable_gold
from atgrpo.extras import optional
from atgrpo.types import Sample

logger = logging.getLogger(__name__)

DEFAULT_FRACTION = 0.1
"""Share of the samples that is held out where nothing is said."""

Row = tuple[str, int, Mapping[str, Any]]
"""Source, number in it (1-based), columns."""


class _Rows(TaskData):
    """Rows with a prompt and an answer column; the others become ``meta``."""

    def __init__(
        self, heldout: str | None, heldout_fraction: float | None, prompt: str, answer: str, scorable_only: bool
    ) -> None:
        if heldout is not None and heldout_fraction is not None:
            raise ValueError("heldout and heldout_fraction got both, expected at most one")
        if heldout is None and heldout_fraction is None:
            heldout_fraction = DEFAULT_FRACTION
        if heldout_fraction is not None and not 0 < heldout_fraction < 1:
            raise ValueError(f"heldout_fraction got {heldout_fraction}, expected a number between 0 and 1")
        self._fraction, self._prompt, self._answer = heldout_fraction, prompt, answer
        self._scorable_only = scorable_only
        self._splits: dict[str, Sequence[Sample]] = {}

    @abstractmethod
    def _rows(self, name: Split) -> Iterator[Row]:
        """The rows of one split; with ``heldout_fraction`` only ``train`` is asked for and holds both."""

    def split(self, name: Split) -> Sequence[Sample]:
        """The samples of one split, read on the first call."""
        check_split(name)
        if not self._splits:
            self._splits = self._load()
        return self._splits[name]

    def _load(self) -> dict[str, Sequence[Sample]]:
        train = self._samples("train")
        if self._fraction is None:
            heldout = self._samples("heldout")
        else:
            # By text, so that two rows with one text never face each other across the splits.
            bound = self._fraction * 2**32
            heldout = [
                replace(sample, id=sample.id.replace("train", "heldout"))
                for sample in train
                if zlib.crc32(sample.prompt.encode()) < bound
            ]
            if not 0 < len(heldout) < len(train):
                raise ValueError(
                    f"heldout_fraction got {self._fraction}, expected one that leaves both splits filled: "
                    f"{len(heldout)} of {len(train)} samples would be held out (or name a file: data.heldout=FILE)"
                )
        texts = {sample.prompt for sample in heldout}
        kept = [sample for sample in train if sample.prompt not in texts]
        if self._fraction is None and len(kept) < len(train):
            logger.warning("%d training samples are in the held-out split and were dropped", len(train) - len(kept))
        if not kept:
            raise ValueError("train got only prompts of the held-out split, expected others")
        return {"train": tuple(kept), "heldout": tuple(heldout)}

    def _samples(self, name: Split) -> list[Sample]:
        samples: list[Sample] = []
        refused: list[str] = []
        source: str = name
        for source, number, row in self._rows(name):
            prompt = self._cell(self._prompt, source, number, row)
            gold = self._gold(source, number, row)
            if gold is None:
                refused.append(f"{str(row[self._answer]).strip()[-40:]!r} at {source}:{number}")
                continue
            meta = {key: value for key, value in row.items() if key not in (self._prompt, self._answer)}
            samples.append(Sample(f"{name}-{number}", prompt, gold, meta))
        if not samples:
            reason = (
                f"none of the {len(refused)} answers can be judged, the first is {refused[0]} (tasks that judge other "
                "answers, or need none: data.scorable_only=false)"
                if refused
                else "no rows"
            )
            raise ValueError(f"{source}: {reason}")
        if refused:
            total = len(refused) + len(samples)
            logger.warning(
                "%s: refused %d of %d answers that cannot be judged, the first is %s",
                source,
                len(refused),
                total,
                refused[0],
            )
        return samples

    def _gold(self, source: str, number: int, row: Mapping[str, Any]) -> str | None:
        """What the row's answer is; None if it cannot be judged."""
        if self._scorable_only:
            return scorable_gold(self._cell(self._answer, source, number, row))
        return "" if row.get(self._answer) is None else str(row[self._answer]).strip()

    @staticmethod
    def _cell(column: str, source: str, number: int, row: Mapping[str, Any]) -> str:
        if row.get(column) is None:
            raise ValueError(f"{source}:{number}: column got nothing in {column!r}, expected one of {sorted(row)}")
        text = str(row[column]).strip()
        if not text:
            raise ValueError(f"{source}:{number}: {column} got an empty text")
        return text


class JsonLines(_Rows):
    """One JSON object a line.

    Args:
        train: File of the training rows; a relative path starts from the current folder.
        heldout: File of the held-out rows.
        heldout_fraction: Instead of ``heldout``: about this share of ``train``, chosen by a hash of the prompt; a tenth
            if neither is given.
        prompt: Column of the problem.
        answer: Column of the gold answer: a plain answer, a solution with a box, or one that ends in ``#### 42``.
        scorable_only: Refuse rows whose answer is no number or expression. False takes any answer as it stands, also
            none, for tasks that judge by something else.
    """

    def __init__(
        self,
        train: str | Path,
        heldout: str | Path | None = None,
        heldout_fraction: float | None = None,
        prompt: str = "prompt",
        answer: str = "answer",
        scorable_only: bool = True,
    ) -> None:
        super().__init__(None if heldout is None else str(heldout), heldout_fraction, prompt, answer, scorable_only)
        # Absolute at once: the run may change its folder before the file is read.
        self._files = {
            "train": Path(train).absolute(),
            "heldout": None if heldout is None else Path(heldout).absolute(),
        }

    def _rows(self, name: Split) -> Iterator[Row]:
        path = self._files[name]
        assert path is not None
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8-sig"))
                json.dumps(row, ensure_ascii=False).encode()  # escapes of JSON can say what is no text
            except UnicodeEncodeError as error:
                raise ValueError(f"{path}:{number}: got half a character, {error.object[error.start]!a}") from None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: got {type(row).__name__}, expected a JSON object")
            yield str(path), number, row


class HubDataset(_Rows):
    """A Hugging Face dataset by name, or a local folder that ``datasets`` wrote or can read.

    Args:
        path: Name or folder; a relative path starts from the current folder.
        train: Its split for training.
        heldout: Its held-out split.
        heldout_fraction: Instead of ``heldout``, as in ``JsonLines``.
        config: Configuration name (GSM8K: ``main``).
        prompt: Column of the problem.
        answer: Column of the gold answer.
        scorable_only: As in ``JsonLines``.
    """

    def __init__(
        self,
        path: str,
        train: str = "train",
        heldout: str | None = None,
        heldout_fraction: float | None = None,
        config: str | None = None,
        prompt: str = "question",
        answer: str = "answer",
        scorable_only: bool = True,
    ) -> None:
        super().__init__(heldout, heldout_fraction, prompt, answer, scorable_only)
        local = Path(path).absolute()
        self._path, self._config = (str(local) if local.is_dir() else path), config
        self._names = {"train": train, "heldout": heldout}

    def _rows(self, name: Split) -> Iterator[Row]:
        datasets = optional("datasets")

        split = self._names[name]
        if any((Path(self._path) / marker).is_file() for marker in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(self._path)
        else:
            loaded = datasets.load_dataset(self._path, self._config)
        if isinstance(loaded, datasets.Dataset):
            loaded = {"train": loaded}
        if split not in loaded:
            raise ValueError(f"{self._path}: split got {split!r}, expected one of {sorted(loaded)}")
        for number, row in enumerate(loaded[split], 1):
            yield f"{self._path}[{split}]", number, row
