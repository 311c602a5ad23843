"""Rules of the house that no linter knows: sizes, and what a committed file may not name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from atgrpo.paths import conf_dir, recipes_dir

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES_IN_A_FILE = 300
MOST_LINES_IN_A_FUNCTION = 50
# In two halves, so that this file does not name them either.
NEVER_NAMED = [
    first + second
    for first, second in [
        ("pypi", ".org"),
        ("files.python", "hosted"),
        ("download.pytorch", ".org"),
        ("registry.npmjs", ".org"),
        ("deb.debian", ".org"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("/Us", "ers/"),
    ]
]


def tracked_files(folder: Path = ROOT) -> Iterator[Path]:
    """Every file that git would take; read off .gitignore, as a copy of the tree may come without git."""
    ignored = [".git", *(ROOT / ".gitignore").read_text().replace("/\n", "\n").split()]
    for path in sorted(folder.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in ignored):
            continue
        if path.is_dir():
            yield from tracked_files(path)
        else:
            yield path


def sources() -> list[Path]:
    return [path for folder in ("atgrpo", "tests") for path in tracked_files(ROOT / folder) if path.suffix == ".py"]


def too_long_functions(source: str) -> list[str]:
    """Names of the functions that take more lines than fit on a screen."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MOST_LINES_IN_A_FUNCTION
    ]


def test_no_file_needs_a_second_sitting() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert {name: n for name, n in lines.items() if n > MOST_LINES_IN_A_FILE} == {}


def test_no_function_needs_scrolling() -> None:
    too_long = {str(path.relative_to(ROOT)): too_long_functions(path.read_text()) for path in sources()}
    assert {name: functions for name, functions in too_long.items() if functions} == {}


@pytest.mark.parametrize(("lines", "caught"), [(50, []), (51, ["f"])])
def test_a_function_may_have_fifty_lines(lines: int, caught: list[str]) -> None:
    assert too_long_functions("def f():\n" + "    pass\n" * (lines - 1)) == caught


@pytest.mark.parametrize("name", NEVER_NAMED)
def test_no_file_names_a_registry_or_a_path_of_one_machine(name: str) -> None:
    naming = [str(path.relative_to(ROOT)) for path in tracked_files() if name.encode() in path.read_bytes()]
    assert naming == []


def test_shipped_configuration_is_found() -> None:
    assert list(conf_dir().rglob("*.yaml"))
    assert list(recipes_dir().rglob("*.yaml"))
