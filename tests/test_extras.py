from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from atgrpo.envs.own import load_function
from atgrpo.extras import EXTRAS, advice, optional


def test_what_is_missing_is_told_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vmas", None)
    with pytest.raises(ValueError, match=r"vmas cannot be imported .*, expected: pip install 'atgrpo\[marl\]'"):
        optional("vmas")
    assert optional("datasets").__name__ == "datasets"


def test_a_function_of_an_extra_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ValueError, match=r"make got 'pettingzoo\.a\.b', .*: pip install 'atgrpo\[aec\]'"):
        load_function("pettingzoo.a.b", "make")
    with pytest.raises(ValueError, match=r"No module named 'no_such'\)$"):
        load_function("no_such.a", "make")


def test_every_extra_is_one_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])
    assert advice(ImportError("of nothing")) == ""
