from __future__ import annotations

from dataclasses import replace

from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.report import tree_text
from atgrpo.types import Observation, Rewards
from tests.rollout.helpers import make_rollout, make_turn, play, table


def test_a_tree_reads_from_top_to_bottom() -> None:
    script = table({"a:": ["1/.5", "2/0"], "b:a2": ["?/0", "1/.25"]})
    rollout = play(TreeSampler(turns=1, branches=2), script).rollout
    scored = replace(rollout, turns=(replace(rollout.turns[0], advantage=-0.5), *rollout.turns[1:]))
    assert tree_text(scored).splitlines() == [
        "sample s, gold answer '!', outcome 0.30",
        "",
        "turn 1, a (pa)",
        "    | a:",
        "    0: team 1.00 local 0.50 reward 1.50 advantage -0.50  1/.5",
        "  > 1: team 2.00 local 0.00 reward 2.00 advantage excluded  2/0",
        "",
        "turn 1, b (pb)",
        "    | b:a2",
        "    0: team missing local 0.00 reward missing advantage excluded  ?/0",
        "  > 1: team 3.00 local 0.25 reward 3.25 advantage excluded  1/.25",
    ]


def test_all_that_an_agent_saw_is_shown() -> None:
    messages = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "grid\nof two"}]
    rollout = replace(make_rollout(make_turn()), observations={("a", 0): Observation("a", messages)})
    assert tree_text(rollout).splitlines()[3:6] == ["    | system: Plan.", "    | user: grid", "    | of two"]


def test_trajectories_say_whose_prompt_is_shown() -> None:
    seen = {("a", 0): Observation("a", [{"role": "user", "content": "grid"}])}
    rollout = replace(make_rollout(make_turn(), make_turn(branch=1)), observations=seen)
    assert "turn 1, a (p), prompt of trajectory 0" in tree_text(rollout)


def test_text_that_cannot_be_encoded_is_shown_escaped() -> None:
    text = tree_text(make_rollout(make_turn(text="half \ud83d of a pair")))
    assert r"half \ud83d of a pair" in text
    text.encode()


def test_a_response_stays_on_one_line_and_an_empty_or_cut_one_shows() -> None:
    lines = tree_text(make_rollout(make_turn(text="one\ntwo", cut=True), make_turn(branch=1))).splitlines()
    assert lines[3].endswith("one / two [cut]")
    assert lines[4].endswith("(nothing)")


def test_playouts_are_named_as_such() -> None:
    playout = replace(make_turn(node=1, turn=1, selected=False), rewards=Rewards(1.0, 0.0, 1.0))
    assert "turn 2, a (p), playout from step 1" in tree_text(make_rollout(make_turn(), playout))


def test_a_rollout_without_turns_has_a_heading() -> None:
    assert tree_text(make_rollout()).strip() == "sample s0, gold answer '!', outcome 0.00"
