from __future__ import annotations

import json
from pathlib import Path

import pytest

from atgrpo.envs.corpus import Corpus, Passage, load_corpus
from atgrpo.envs.world import world, world_corpus

RED, BLUE, SEA = (
    Passage("Red", "a warm colour"),
    Passage("Blue", "a cold colour"),
    Passage("Sea", "is blue, blue, deep"),
)


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def row(passage: Passage) -> dict[str, str]:
    return {"title": passage.title, "text": passage.text}


def test_passages_are_found_by_their_words_best_first_and_never_without_a_common_word() -> None:
    corpus = Corpus([RED, BLUE, SEA])
    assert corpus.search("BLUE!", 3) == (SEA, BLUE)
    assert corpus.search("BLUE!", 1) == (SEA,)
    assert corpus.search("a colour", 3) == (RED, BLUE)
    assert corpus.search("warm, deep", 3) == (RED, SEA)
    assert corpus.search("green", 3) == corpus.search("", 3) == corpus.search("?!", 3) == ()
    assert corpus.titles == {"Red", "Blue", "Sea"}


def test_scores_are_those_of_the_formula() -> None:
    # BM25 as in Lucene: idf = ln(1 + (3 - 2 + .5) / (2 + .5)); tf / (tf + k1 (1 - b + b length / mean length)).
    scores = Corpus([RED, BLUE, SEA])._index.get_scores(["blue"])
    idf, mean = 0.470004, 13 / 3
    expected = [0.0, idf / (1 + 1.5 * (0.25 + 0.75 * 4 / mean)), idf * 2 / (2 + 1.5 * (0.25 + 0.75 * 5 / mean))]
    assert scores == pytest.approx(expected, rel=1e-4)


def test_a_passage_without_words_is_never_found_and_breaks_nothing() -> None:
    assert Corpus([Passage("", "..."), RED]).search("red ...", 2) == (RED,)
    with pytest.raises(ValueError, match="passages got none, expected at least one"):
        Corpus([])


def test_a_file_is_indexed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.jsonl", row(RED), "", row(BLUE))
    corpus = load_corpus(path)
    assert corpus.search("blue", 1) == (BLUE,)
    monkeypatch.chdir(tmp_path)
    assert load_corpus(Path("a.jsonl")) is corpus
    written(path, row(RED), row(SEA))
    assert load_corpus(path).search("blue", 1) == (SEA,)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], r"a\.jsonl:1: not JSON"),
        ([row(RED), [1]], r"a\.jsonl:2: got \[1\], expected an object with the texts 'title' and 'text'"),
        ([{"title": "Red"}], r"a\.jsonl:1: got {'title': 'Red'}"),
        ([{"title": "Red", "text": 3}], r"a\.jsonl:1: got"),
        ([r'{"title": "Red", "text": "\ud800"}'], r"a\.jsonl:1: got half a character, '\\ud800'"),
        ([""], r"a\.jsonl: got no passages"),
    ],
)
def test_a_line_that_is_no_passage_is_named(lines: list[object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load_corpus(written(tmp_path / "a.jsonl", *lines))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl: no such file"):
        load_corpus(tmp_path / "none.jsonl")


def test_in_the_world_every_name_finds_its_own_passage_first() -> None:
    titles = [passage.title for passage in world().passages()]
    assert len(set(titles)) == len(titles) == 1024 + 64 + 64
    assert [t for t in titles if world_corpus().search(t, 1)[0].title != t] == []


def test_names_of_the_world_are_different_and_it_is_always_the_same() -> None:
    w = world()
    kinds = [
        {p.name for p in w.people},
        set(w.company_country),
        set(w.town_river),
        set(w.town_river.values()),
        set(w.town_country.values()) | set(w.company_country.values()),
    ]
    assert len(set().union(*kinds)) == sum(len(kind) for kind in kinds)
    assert {len(name) for kind in kinds for name in kind} == {5}
    assert w.people[0].name == "Vinur"  # another world would mix up the splits of earlier runs
    assert all(p.company in w.company_country and p.town in w.town_river for p in w.people)
