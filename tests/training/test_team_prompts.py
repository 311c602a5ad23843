"""What the engine is asked, token by token: template, generation header, start token, limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.envs.base import Environment
from atgrpo.envs.math import MathTeam
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.collate import Batching, make_minibatches
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.training.rollout_metrics import rollout_metrics
from atgrpo.training.team import Team
from atgrpo.types import Minibatch, Observation, Request, Rollout, Sample
from tests.rollout.helpers import Tally

HEADER = "<|im_start|>assistant\n"
PROBLEM = Sample("s", "Tom has 3 bags of 5 nuts.", "15")
ASKED = {"role": "user", "content": "x"}


def start(
    environment: Callable[[], Environment],
    replies: list[str],
    *agents: str,
    folder: Path | None = None,
    limit: int = 2000,
) -> Team:
    return Team(
        engine=partial(ScriptedEngine, script=lambda request, i: replies[i]),
        environment=environment,
        agents=dict.fromkeys(agents, "p"),
        policies={"p": SimpleNamespace(folder=folder or model_folder("tiny"), adapter=None)},
        max_prompt_tokens=limit,
    )


def play(team: Team, turns: int = 1) -> Rollout:
    [rollout] = team.play([PROBLEM], TreeSampler(turns=turns, branches=2), seed=0)
    return rollout


def asked(team: Team) -> list[Request]:
    return list(team.engine.requests)  # type: ignore[attr-defined]


def packed(rollout: Rollout) -> Minibatch:
    scored = ATGRPO().on_rollout_end(None, None, [rollout])
    [batch] = make_minibatches(scored, ["p"], Batching(), seed=0, skip_zero=False)
    return batch


def prompts_of(batch: Minibatch) -> list[tuple[int, ...]]:
    """What each row holds in front of its responses."""
    return [tuple(ids[branch == 0].tolist()) for ids, branch in zip(batch.token_ids, batch.branch_ids, strict=True)]


# verifiers issue 476: the header was there in the first turn only.
def test_an_agent_answers_behind_the_assistants_header_in_every_turn_of_its_dialogue() -> None:
    team = start(partial(MathTeam, shots=0), ["1+1", "2+2"], "tool")
    play(team, turns=3)
    texts = [team.tokenizers["p"].decode(request.prompt_ids) for request in asked(team)]
    assert len(texts) == 3
    for turn, text in enumerate(texts):
        assert text.endswith(f"<|im_end|>\n{HEADER}")
        assert text.count(HEADER) == turn + 1  # one for each earlier turn, and the open one
        assert text.count("<|im_end|>") == text.count("<|im_start|>") - 1


@pytest.mark.parametrize("earlier", [[], [ASKED, {"role": "assistant", "content": "y"}]])
def test_a_chat_is_rendered_up_to_where_the_answer_starts(earlier: list[dict[str, str]]) -> None:
    team = start(Tally, [], "a")
    messages = [{"role": "system", "content": "Add."}, *earlier, ASKED]
    said = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    assert team.tokenizers["p"].decode(team.render("p", messages)) == said + HEADER


@pytest.fixture
def starting_folder(tmp_path: Path) -> Path:
    """A tokenizer that puts a start token in front of a text, as its chat template does too."""
    tokenizer = AutoTokenizer.from_pretrained(model_folder("tiny"))
    tokenizer.bos_token = "<unk>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<unk> $A", special_tokens=[("<unk>", tokenizer.bos_token_id)]
    )
    tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


# trl issue 3853: the template's start token, and the tokenizer's in front of it.
def test_a_prompt_has_one_start_token_and_is_the_same_for_engine_and_trainer(starting_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(starting_folder)
    first = tokenizer.bos_token_id
    assert tokenizer(f"<unk>{HEADER}")["input_ids"].count(first) == 2
    team = start(Tally, ["1/0", "0/0"], "a", "b", folder=starting_folder)
    rollout = play(team, turns=2)
    prompts = [request.prompt_ids for request in asked(team)]
    assert len(prompts) == 4
    assert all(ids[0] == first and ids.count(first) == 1 for ids in prompts)
    assert sorted(prompts_of(packed(rollout))) == sorted(prompts)


class Wordy(Tally):
    """Its rendered prompts have 600 tokens: 19 of the template, 581 of the problem."""

    def observe(self, agent: str) -> Observation:
        return Observation(agent, [{"role": "user", "content": "x" * 581}])


# EasyR1 issue 210: the trainer cut what the engine had answered in full.
def test_a_prompt_over_the_limit_is_not_asked_but_counted_and_one_within_it_is_trained_uncut() -> None:
    over, within = (start(Wordy, ["1/0", "0/0"], "a", limit=limit) for limit in (512, 600))
    rejected, played = play(over), play(within)
    assert (asked(over), rejected.turns) == ([], ())
    assert [rollout_metrics([r])["rollout/overlong_prompts"] for r in (rejected, played)] == [1.0, 0.0]
    [request] = asked(within)
    assert len(request.prompt_ids) == 600
    assert {turn.prompt_ids for turn in played.turns} == {request.prompt_ids}
    assert prompts_of(packed(played)) == [request.prompt_ids]


# verl issue 2069: the filter measured the problem without the role's own text.
@pytest.mark.parametrize(("limit", "roles"), [(2000, ["tool", "reasoner"]), (500, ["tool"]), (50, [])])
def test_the_limit_holds_for_the_whole_rendered_prompt_of_each_role(limit: int, roles: list[str]) -> None:
    environment = partial(MathTeam, shots=0, tool_prompt="Add.", reasoner_prompt="Think. " * 100)
    team = start(environment, ["1+1", "2+2"], "tool", "reasoner", limit=limit)
    rollout = play(team)
    assert len(PROBLEM.prompt) < 50
    assert list(dict.fromkeys(turn.key.agent for turn in rollout.turns)) == roles
    assert all(len(request.prompt_ids) <= limit for request in asked(team))
    assert rollout.overlong is (len(roles) < 2)
