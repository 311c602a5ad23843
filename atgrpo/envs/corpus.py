"""Passages that are found by their words: BM25 in memory, without a service."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Passage:
    """One entry of a corpus."""

    title: str
    """What it is about; several passages may share one."""
    text: str


class Corpus:
    """Passages and their index (BM25 as in Lucene, k1 1.5, b 0.75; Robertson et al., TREC-3). Never changes.

    Args:
        passages: At least one; titles are searched like texts.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        import bm25s

        if not passages:
            raise ValueError("passages got none, expected at least one")
        self._passages = tuple(passages)
        self.titles = frozenset(passage.title for passage in passages)
        self._index = bm25s.BM25()
        self._index.index([_words(f"{p.title} {p.text}") or [""] for p in passages], show_progress=False)

    def search(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` best passages that share a word with the query, best first; of equals the earlier first."""
        import numpy as np

        words = _words(query)
        if not words:
            return ()
        scores = self._index.get_scores(words)
        order = np.argsort(-scores, kind="stable")[:k]
        return tuple(self._passages[i] for i in order if scores[i] > 0)


def load_corpus(path: Path) -> Corpus:
    """The corpus of a JSON-lines file with ``title`` and ``text`` in each line; read and indexed once.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no such object, or there is none.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    status = path.stat()
    return _load(path.absolute(), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _load(path: Path, changed: int, size: int) -> Corpus:
    """A file that has changed is another one."""
    passages = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            passages.append(_passage(f"{path}:{number}", line))
    if not passages:
        raise ValueError(f"{path}: got no passages, expected at least one")
    return Corpus(passages)


def _passage(where: str, line: bytes) -> Passage:
    try:
        row = json.loads(line.decode("utf-8-sig"))
        json.dumps(row, ensure_ascii=False).encode()  # escapes of JSON can say what is no text
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: got half a character, {error.object[error.start]!a}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("title", "text")):
        raise ValueError(f"{where}: got {str(row)[:80]}, expected an object with the texts 'title' and 'text'")
    return Passage(row["title"], row["text"])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
