from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.data.plan_path import PathGrids
from atgrpo.data.puzzles import PuzzleData, canonical, split_of
from atgrpo.data.sokoban import SokobanLevels
from atgrpo.data.sudoku import Sudokus
from atgrpo.envs.plan_path import PlanPathTeam
from atgrpo.envs.sokoban import SokobanTeam
from atgrpo.envs.sudoku import SudokuTeam
from tests.envs.puzzles import act, seen, team

ALL = [
    (PathGrids, PlanPathTeam, {"max_moves": 8}),
    (PathGrids, PlanPathTeam, {"rows": 6, "columns": 9, "walls": 0.3, "min_moves": 5}),
    (SokobanLevels, SokobanTeam, {"max_moves": 8}),
    (SokobanLevels, SokobanTeam, {"size": 7, "boxes": 2, "min_moves": 6, "max_moves": 20}),
    (Sudokus, SudokuTeam, {}),
    (Sudokus, SudokuTeam, {"blanks": 9}),
    (Sudokus, SudokuTeam, {"side": 9, "blanks": 40}),
]
SIZES = {"train_size": 32, "heldout_size": 8}


@pytest.mark.parametrize(("data", "env", "settings"), ALL)
def test_every_puzzle_is_solved_by_its_answer_and_never_holds_it(
    data: type[PuzzleData], env: type, settings: dict[str, int]
) -> None:
    source = data(**SIZES, **settings)  # type: ignore[arg-type]
    samples = [*source.split("train"), *source.split("heldout")]
    assert len({sample.id for sample in samples}) == len({sample.prompt for sample in samples}) == 40
    for sample in samples:
        played = team(env, sample.prompt)
        assert sample.answer not in "".join(seen(played, "critic").split())
        assert act(played, "critic", sample.answer).team_reward == 1.0


@pytest.mark.parametrize(("data", "env", "settings"), ALL)
def test_splits_are_disjoint_under_every_seed_and_mirror_image(
    data: type[PuzzleData], env: type, settings: dict[str, int]
) -> None:
    train = data(**SIZES, **settings, seed=1).split("train")  # type: ignore[arg-type]
    heldout = data(**SIZES, **settings, seed=2).split("heldout")  # type: ignore[arg-type]
    assert not {canonical(sample.prompt) for sample in train} & {canonical(sample.prompt) for sample in heldout}


@pytest.mark.parametrize(("data", "env", "settings"), ALL)
def test_equal_seeds_give_equal_samples_and_others_do_not(
    data: type[PuzzleData], env: type, settings: dict[str, int]
) -> None:
    one, same, other = (
        data(**SIZES, **settings, seed=seed).split("heldout")  # type: ignore[arg-type]
        for seed in (3, 3, 4)
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize(("data", "env", "settings"), [ALL[0], ALL[2], ALL[4]])
def test_small_settings_fit_a_character_model(data: type[PuzzleData], env: type, settings: dict[str, int]) -> None:
    for sample in data(**SIZES, **settings).split("heldout"):  # type: ignore[arg-type]
        assert len(sample.answer) <= 11
        played = team(env, sample.prompt)
        act(played, "critic", "1234" if env is SudokuTeam else "RDLRUDLRUDL")
        act(played, "proposer", "4321" if env is SudokuTeam else "RLDULRUDLRU")
        assert len(seen(played, "critic")) < 150
        assert len(sample.prompt) < 45


@given(st.lists(st.text("#.12", min_size=3, max_size=3), min_size=2, max_size=3), st.integers(0, 3), st.booleans())
def test_mirror_images_rotations_and_renamed_digits_belong_to_one_split(
    rows: list[str], turns: int, mirrored: bool
) -> None:
    image = [*rows]
    for _ in range(turns):
        image = ["".join(column) for column in zip(*image[::-1], strict=True)]
    image = [row[::-1] for row in image] if mirrored else image
    renamed = "\n".join(image).translate(str.maketrans("12", "21"))
    assert canonical(renamed) == canonical("\n".join(rows))
    assert split_of(renamed) == split_of("\n".join(rows))


def test_different_puzzles_have_different_canonical_forms() -> None:
    assert canonical("S.\n.G") == canonical("G.\n.S") != canonical("SG\n..")


def test_about_one_in_eight_is_held_out() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choice("#.") for _ in range(30)) for _ in range(2000)]
    assert 200 < sum(split_of(text) == "heldout" for text in texts) < 300


@pytest.mark.parametrize("data", [PathGrids, SokobanLevels, Sudokus])
def test_wrong_sizes_and_splits_are_refused(data: type[PuzzleData]) -> None:
    with pytest.raises(ValueError, match="train_size got 0, expected at least 1"):
        data(train_size=0)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="heldout_size got -1"):
        data(heldout_size=-1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="split got 'test'"):
        data().split("test")  # type: ignore[arg-type,call-arg]
