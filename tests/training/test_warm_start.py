from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from atgrpo.cli.main import main
from atgrpo.data.base import Split
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.demonstrations import Demonstration
from atgrpo.training.warm_start import IGNORED, Task, WarmStart, _encoded
from atgrpo.types import Sample
from tests.training.counting import Counting, Digits

BOTH = frozenset({"solver"})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATGRPO_CACHE", str(tmp_path))
    return tmp_path


class Fewer(Digits):
    """As of a file that was edited."""

    def split(self, name: Split) -> Sequence[Sample]:
        return super().split(name)[:5]


class Alone(Counting):
    """The second role is never asked."""

    @property
    def done(self) -> bool:
        return bool(self.said)


def task(turns: int = 1, description: str = "") -> Task:
    agents = {"tool": "solver", "reasoner": "solver"}
    return Task(Counting, Digits(), agents, TreeSampler(turns=turns), {}, description)


def test_without_steps_the_model_is_the_one_that_was_asked_for() -> None:
    assert WarmStart().folder("some/model", BOTH, task()) == "some/model"


def test_a_model_learns_what_it_is_shown_and_where_a_response_ends(cache: Path) -> None:
    folder = WarmStart(steps=80, lr=1e-2).folder("tiny", BOTH, task())
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for sample in Digits().split("train"):
        message = [{"role": "user", "content": sample.prompt}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False, return_tensors="pt")
        out = model.generate(ids, max_new_tokens=4, do_sample=False)[0, ids.shape[1] :].tolist()
        assert out == [*tokenizer.encode(sample.answer), tokenizer.eos_token_id]


def test_it_is_made_once_for_the_same_settings_and_anew_for_others(cache: Path) -> None:
    first = WarmStart(steps=1).folder("tiny", BOTH, task())
    stamp = (Path(first) / "model.safetensors").stat().st_mtime_ns
    assert WarmStart(steps=1).folder("tiny", BOTH, task()) == first
    assert (Path(first) / "model.safetensors").stat().st_mtime_ns == stamp
    others = [
        WarmStart(steps=2).folder("tiny", BOTH, task()),
        WarmStart(steps=1, seed=1).folder("tiny", BOTH, task()),
        WarmStart(steps=1).folder("tiny-untied", BOTH, task()),
        WarmStart(steps=1).folder("tiny", BOTH, task(turns=2)),
        WarmStart(steps=1).folder("tiny", BOTH, task(description="env: another")),
        WarmStart(steps=1).folder("tiny", BOTH, replace(task(), data=Fewer())),
    ]
    assert len({first, *others}) == 7


def test_a_policy_that_is_never_asked_has_nothing_to_imitate(cache: Path) -> None:
    two = replace(task(), environment=Alone, agents={"tool": "a", "reasoner": "b"})
    WarmStart(steps=1).folder("tiny", frozenset({"a"}), two)
    with pytest.raises(ValueError, match="warm_start: the demonstrations never ask some policy"):
        WarmStart(steps=1).folder("tiny", frozenset({"b"}), two)


def test_the_global_random_state_is_left_alone(cache: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    WarmStart(steps=1).folder("tiny", BOTH, task())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_only_the_response_and_its_end_are_learned(cache: Path) -> None:
    from atgrpo.policies.sources import model_folder

    tokenizer = AutoTokenizer.from_pretrained(model_folder("tiny"))
    ids, labels = _encoded(tokenizer, {}, Demonstration("tool", ({"role": "user", "content": "x"},), "12"))
    learned = [*tokenizer.encode("12"), tokenizer.eos_token_id]
    assert ids[-3:] == labels[-3:] == learned
    assert set(labels[:-3]) == {IGNORED}


@pytest.mark.parametrize("settings", [{"steps": -1}, {"episodes": 0}, {"lr": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected at least 0, 1 and more than 0"):
        WarmStart(**settings)


def test_a_run_starts_from_it_and_a_task_without_demonstrations_is_one_line(
    cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    common = ["fit", "--config", "debug", f"run.root={cache / 'runs'}", "engine=transformers", "iterations=1"]
    common += ["warm_start.steps=60", "warm_start.lr=1e-2", "heldout.problems=9"]
    task = ["env={_target_: tests.training.counting.Counting, _partial_: true}"]
    assert main([*common, *task, "data={_target_: tests.training.counting.Digits}", "~data.steps", "~data.seed"]) == 0
    out = capfd.readouterr().out
    assert "warm start: 60 steps on tiny-1, loss 0." in out
    assert "after 0 iterations: held-out success (greedy, 9 problems): 100.0%" in out
    assert main(common) == 2
    assert "error: warm_start: MathTeam demonstrates nothing for tool" in capfd.readouterr().err
