from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.envs.grids import last_symbols, paths, read_rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RRD", "RRD"),
        ("R, R -> D", "RRD"),
        ("I go right.\nRRD", "RRD"),
        ("R\nR\n\nD\n", "RRD"),
        ("U\nno:\nRRD", "RRD"),
        ("**RRD**", "RRD"),
        (r"\boxed{U} or rather \boxed{RRD}, as said.", "RRD"),
        (r"\boxed{\text{RRD}}", "RRD"),
        (r"\boxed{R, R, D}" + "\nU", "RRD"),
        ("<think>UU</think>RRD", "RRD"),
        (r"<think>\boxed{UU}</think> \boxed{RRD}", "RRD"),
        ("<think>\nRRD", ""),
        (r"<think>\boxed{UU}</think> none", ""),
        ("RRD.", ""),
        ("rrd", ""),
        ("Go RRD", ""),
        ("RRD\nthat is it", ""),
        (r"RRD \boxed{}", ""),
        (r"\boxed{RRX}" + "\nRRD", ""),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_the_box_counts_else_the_last_lines_of_nothing_but_moves(text: str, said: str) -> None:
    assert last_symbols(text, "UDLR") == said


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert set(last_symbols(text, "UDLR")) <= set("UDLR")


def test_short_lines_end_in_walls() -> None:
    assert read_rows("\nS.\n..G \n", "#.SG") == ("S.#", "..G")


@pytest.mark.parametrize("text", ["", " \n", "S.x"])
def test_what_is_no_grid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="grid got"):
        read_rows(text, "#.SG")


def test_paths_stop_at_walls_and_edges() -> None:
    assert paths(["..", "#."]) == {0: {"R": 1}, 1: {"L": 0, "D": 3}, 3: {"U": 1}}
