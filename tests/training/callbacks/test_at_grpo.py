"""From what a model wrote, over the judge, to what it learns."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import math_verify.grader
import pytest

from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.envs.math import MathTeam
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.collate import Batching, make_minibatches
from atgrpo.rollout.parallel import ParallelSampler
from atgrpo.rollout.samplers import Sampler
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.training.team import Team
from atgrpo.types import Rollout, Sample

SAMPLE = Sample("s", "How long is the diagonal of a cube with edge 2?", r"\sqrt{12}")
THIRD = 1 / math.sqrt(3)
SAMPLERS = [TreeSampler(turns=1, branches=4, max_tokens=40), ParallelSampler(turns=1, trajectories=4, max_tokens=40)]


def scored(sampler: Sampler, replies: list[str], *agents: str) -> Rollout:
    """The agents, or a reasoner alone, answer the sample in these words."""
    left = iter(replies)
    team = Team(
        engine=partial(ScriptedEngine, script=lambda request, i: next(left)),
        environment=MathTeam,
        agents=dict.fromkeys(agents or ("reasoner",), "p"),
        policies={"p": SimpleNamespace(folder=model_folder("tiny"), adapter=None)},  # type: ignore[dict-item]
        max_prompt_tokens=2000,
    )
    [rollout] = ATGRPO(eps=0.0).on_rollout_end(None, None, team.play([SAMPLE], sampler, seed=0))
    return rollout


@pytest.fixture
def fragile_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """math-verify's own comparison, which crashes on one right way to write the answer."""
    real = math_verify.grader.verify

    def verify(gold: Any, answer: Any, *more: Any, **settings: Any) -> bool:
        if "6" in str(answer):
            raise RuntimeError("broken")
        return bool(real(gold, answer, *more, **settings))

    monkeypatch.setattr(math_verify.grader, "verify", verify)


# rllm issue 710: a verifier that crashed paid 0, as if the answer had been wrong.
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("wrong", [r"\boxed{5}", r"\boxed{10^{10^{10}}}", "no answer"])
def test_a_crash_of_the_judge_is_left_out_and_an_answer_it_will_not_read_is_wrong(
    sampler: Sampler, wrong: str, fragile_judge: None
) -> None:
    replies = [r"\boxed{2\sqrt{3}}", wrong, r"\boxed{\frac{6}{\sqrt{3}}}", r"it is \boxed{2\sqrt{3}}"]
    rollout = scored(sampler, replies)
    turns = rollout.turns
    assert [turn.completion.finish_reason for turn in turns] == ["stop"] * 4
    assert [turn.rewards.team for turn in turns] == [1.0, 0.0, None, 1.0]
    assert [turn.advantage for turn in turns] == pytest.approx([THIRD, -2 * THIRD, None, THIRD])
    [batch] = make_minibatches([rollout], ["p"], Batching(), seed=0)
    lengths = [len(turn.completion.token_ids) for turn in turns]
    assert (int(batch.loss_mask.sum()), batch.denominator) == (sum(lengths) - lengths[2],) * 2


def test_all_missing_is_nothing_to_learn_and_no_reward_of_zero(fragile_judge: None) -> None:
    rollout = scored(SAMPLERS[0], [r"\boxed{\frac{6}{\sqrt{3}}}"] * 4)
    assert [turn.advantage for turn in rollout.turns] == [None] * 4
    assert math.isnan(rollout.outcome)
    [batch] = make_minibatches([rollout], ["p"], Batching(), seed=0)
    assert not batch.loss_mask.any()


# BenchMARL issue 136: an agent went on acting after its episode had ended.
def test_of_agents_that_act_at_once_none_is_heard_after_the_end() -> None:
    sampler = TreeSampler(turns=3, branches=2, order="parallel", max_tokens=40)
    disagree, agree = [r"\boxed{5}"] * 2 + ["2+1"] * 2, [r"\boxed{3}"] * 2 + ["2+2"] * 2
    # A step on a finished episode would raise, and a third turn would find no reply.
    rollout = scored(sampler, disagree + agree, "reasoner", "tool")
    assert [turn.key.turn for turn in rollout.turns] == [0] * 4 + [1] * 4
    assert [turn.done for turn in rollout.turns] == [False] * 4 + [True, True, False, False]
    assert (rollout.outcome, rollout.success_by_turn) == (0.0, (0.0, 0.0, 0.0))
