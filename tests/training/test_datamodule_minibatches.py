"""What is sampled, what is trained, and what one step makes of it: real policy, real engine, real trainer."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from transformers import AutoTokenizer

from atgrpo.cli.build import build
from atgrpo.cli.config import ConfigError, find_recipe, load
from atgrpo.engines.scripted import ScriptedEngine
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.policies.causal_lm import CausalLMPolicy
from atgrpo.policies.sources import model_folder
from atgrpo.rollout.collate import Batching
from atgrpo.rollout.tree import TreeSampler
from atgrpo.training.callbacks.at_grpo import ATGRPO
from atgrpo.training.datamodule import RolloutDataModule
from atgrpo.training.filters import GroupFilter
from atgrpo.training.loss import LossSettings
from atgrpo.training.module import MultiPolicyModule
from atgrpo.training.rollout_metrics import rollout_metrics
from atgrpo.training.schedule import Schedule
from atgrpo.training.team import Team
from atgrpo.types import Minibatch, Rollout, Sample
from tests.cli.letters import Letters
from tests.training.bare import bare_trainer

AGENTS = {"tool": "p", "reasoner": "p"}
K = 2


@dataclass
class Run(L.Callback):
    """What went through the trainer."""

    rollouts: list[Rollout] = field(default_factory=list)
    batches: list[Minibatch] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    """Of the policy in the last iteration."""
    module: Any = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Minibatch, batch_idx: int) -> None:
        self.batches.append(batch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.rollouts += trainer.datamodule.latest.rollouts
        self.metrics, self.module = pl_module.pop_stats()["p"], pl_module


def trainer_of(run: Run, iterations: int, precision: Any) -> L.Trainer:
    return bare_trainer(max_epochs=iterations, precision=precision, callbacks=[run, ATGRPO(eps=0.0)])


def train(
    engine: Callable[..., Any] = TransformersEngine,
    *,
    samples: int = 2,
    prompts: int = 2,
    iterations: int = 1,
    turns: int = 1,
    k: int = K,
    temperature: float = 1.0,
    rate: float = 0.1,
    model: str = "tiny",
    agents: dict[str, str] = AGENTS,
    entropy: float = 0.0,
    precision: Any = "32-true",
    **batching: Any,
) -> Run:
    run = Run()
    module = MultiPolicyModule(
        policies={"p": partial(CausalLMPolicy, model)},
        optimizers={"p": partial(torch.optim.SGD, lr=rate)},
        schedule=Schedule(),
        total_steps=100,
        loss=LossSettings(entropy=entropy),
        clip_norm=1.0,
        temperature=temperature,
    )
    data = RolloutDataModule(
        data=SimpleNamespace(split=lambda name: [Sample(f"s{i}", f"{i}", "!") for i in range(samples)]),
        start_team=lambda policies: Team(
            engine=engine, environment=Letters, agents=agents, policies=policies, max_prompt_tokens=500
        ),
        sampler=TreeSampler(turns=turns, branches=k, max_tokens=8, temperature=temperature),
        prompts_per_iteration=prompts,
        batching=Batching(**batching),
        group_filter=GroupFilter(),
        seed=0,
    )
    trainer_of(run, iterations, precision).fit(module, datamodule=data)
    return run


def scripted(*replies: str) -> Callable[..., ScriptedEngine]:
    return partial(ScriptedEngine, script=lambda request, i: replies[i])


def responses(batches: Sequence[Minibatch]) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(prompt, trained ids) -> how many equal responses were trained."""
    found: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    for batch in batches:
        for ids, branches, mask, weights in zip(
            batch.token_ids, batch.branch_ids, batch.loss_mask, batch.weights, strict=True
        ):
            for k in range(1, int(branches.max()) + 1):
                own = mask & (branches == k)
                prompt, answer = ids[branches == 0].tolist(), ids[own].tolist()
                found[tuple(prompt), tuple(answer)] += int(weights[own][0])
    return found


# trl issues 3675 and 4271: the sampler dropped or repeated prompts inside one optimiser step's window.
@pytest.mark.parametrize(("prompts", "iterations", "passes"), [(9, 1, 1), (3, 3, 1), (4, 9, 4)])
def test_each_of_nine_prompts_is_answered_k_times_per_pass_and_trained_once_per_epoch(
    prompts: int, iterations: int, passes: int
) -> None:
    run = train(
        scripted("a1", "b"),
        samples=9,
        prompts=prompts,
        iterations=iterations,
        entropy=0.01,
        ppo_epochs=2,
        minibatches=2,
        tokens_per_microbatch=100,
    )
    turns = [turn for rollout in run.rollouts for turn in rollout.turns]
    answered = Counter((turn.key.sample_id, turn.key.agent) for turn in turns)
    assert answered == {(f"s{i}", agent): K * passes for i in range(9) for agent in AGENTS}
    assert {len(rollout.turns) for rollout in run.rollouts} == {K * len(AGENTS)}
    sampled = Counter((turn.prompt_ids, turn.completion.token_ids) for turn in turns)
    assert responses(run.batches) == sampled + sampled
    assert sum(batch.last for batch in run.batches) == 4 * iterations


# assignment5 issue 15 and codescout issue 60: text was encoded again, and template tokens between turns were trained.
def test_exactly_the_sampled_ids_of_every_turn_are_trained_also_where_their_text_reads_otherwise() -> None:
    run = train(turns=2, k=8, entropy=0.01)
    turns = [turn for rollout in run.rollouts for turn in rollout.turns]
    assert {turn.key.turn for turn in turns} == {0, 1}
    assert responses(run.batches) == Counter((turn.prompt_ids, turn.completion.token_ids) for turn in turns)
    tokenizer = AutoTokenizer.from_pretrained(model_folder("tiny"))
    again = [tuple(tokenizer.encode(turn.completion.text)) for turn in turns]
    assert sum(turn.completion.token_ids not in (ids, (*ids, 3)) for turn, ids in zip(turns, again, strict=True)) > 2


# torchforge issue 744: one cut response took its whole group with it.
@pytest.mark.parametrize(("mask_truncated", "trained", "tokens"), [(False, 4, 20), (True, 3, 12)])
def test_a_group_with_one_cut_response_is_scored_as_a_whole_and_the_step_completes(
    mask_truncated: bool, trained: int, tokens: int
) -> None:
    engine = scripted("aaa", "bbb", "ccc", "a" * 99)  # rewards 1, 0, 0, 1; four tokens each, the last eight
    run = train(engine, samples=1, prompts=1, k=4, agents={"tool": "p"}, mask_truncated=mask_truncated)
    [rollout] = run.rollouts
    half_root_3 = 0.8660254
    scores = [turn.advantage for turn in rollout.turns]
    assert scores == pytest.approx([half_root_3, -half_root_3, -half_root_3, half_root_3])
    assert sum(responses(run.batches).values()) == trained
    assert [batch.denominator for batch in run.batches] == [tokens]
    assert run.metrics["trained_tokens"] == tokens
    assert 0 < run.metrics["grad_norm"] < float("inf")
    start = dict(CausalLMPolicy("tiny").named_parameters())
    assert not any(torch.equal(p, start[name]) for name, p in run.module.policies["p"].named_parameters())
    # trl issue 3476: lengths were measured after masking.
    lengths = rollout_metrics(run.rollouts)
    names = ("response_length", "response_length_max", "truncated")
    assert [lengths[f"rollout/tool/{name}"] for name in names] == [5.0, 8.0, 0.25]


# verl issue 5625: every micro-batch was normalised by its own tokens.
def test_a_step_is_the_same_for_any_size_of_micro_batch() -> None:
    whole, *parts = (
        train(scripted("a1", "bbbbbbb"), samples=4, prompts=4, tokens_per_microbatch=n) for n in (9999, 40, 1)
    )
    assert [len(run.batches) for run in (whole, *parts)] == [1, 8, 16]
    for part in parts:
        assert part.metrics["loss"] == pytest.approx(whole.metrics["loss"], abs=1e-6)
        assert part.metrics["grad_norm"] == pytest.approx(whole.metrics["grad_norm"], rel=1e-5)
        for got, expected in zip(part.module.parameters(), whole.module.parameters(), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


@pytest.fixture
def dropping(tmp_path: Path) -> str:
    """The tiny model with dropout in its configuration."""
    folder = shutil.copytree(model_folder("tiny"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    return str(folder)


# verl issue 2088 (dropout), trl issue 4159 (log-probs of another temperature).
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_before_any_update_old_new_and_sampled_log_probs_agree(dropping: str, temperature: float) -> None:
    run = train(model=dropping, temperature=temperature, rate=0.0, minibatches=2, ppo_epochs=2)
    assert run.metrics["trained_tokens"] > 50
    assert run.metrics["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert run.metrics["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert run.metrics["logprob_mismatch_max"] < 1e-3
    assert run.module.policies["p"].training


# AReaL issue 1369: weights that live in bf16 swallow small updates.
def test_a_thousand_updates_of_a_millionth_add_up() -> None:
    module = build(load(find_recipe("debug"), ["optimizer.lr=1e-6", "optimizer.weight_decay=0"])).module()
    module.configure_model()
    [optimizer], _ = module.configure_optimizers()
    parameter = optimizer.param_groups[0]["params"][0]
    assert parameter is next(module.policies["solver"].parameters())
    parameter.data.fill_(0.02)
    parameter.grad = torch.ones_like(parameter)  # constant, so that each of AdamW's updates is the rate
    for _ in range(1000):
        optimizer.step()
    torch.testing.assert_close(parameter.data.float(), torch.full(parameter.shape, 0.0190), atol=1e-6, rtol=0)


def test_weights_stay_in_float32_under_mixed_precision() -> None:
    run = train(precision="bf16-mixed", rate=1e-7)
    start = dict(CausalLMPolicy("tiny").named_parameters())
    steps = [float((p - start[name]).abs().max()) for name, p in run.module.policies["p"].named_parameters()]
    assert {parameter.dtype for parameter in run.module.parameters()} == {torch.float32}
    assert 0 < max(steps) < 1e-6


@pytest.mark.parametrize("precision", ["bf16-true", "16-true", "16-mixed"])
def test_weights_in_half_precision_are_refused(precision: str) -> None:
    with pytest.raises(ConfigError, match=rf"precision: got {precision}, expected 32-true or bf16-mixed"):
        build(load(find_recipe("debug"), [f"trainer.precision={precision}"]))
