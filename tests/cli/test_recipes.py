from __future__ import annotations

from pathlib import Path

import pytest

from atgrpo.cli.main import main
from atgrpo.paths import recipes_dir

SMALL = [
    "data=word_problems",
    "trainer=auto",
    "policy.model=tiny",
    "engine=transformers",
    "prompts_per_iteration=2",
    "iterations=1",
    "sampler.max_tokens=8",
    "max_prompt_tokens=2000",
    "heldout.problems=2",
]


@pytest.mark.parametrize("recipe", sorted(recipes_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_does_one_iteration(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--config", str(recipe), f"run.root={tmp_path}", *SMALL]) == 0
    assert "iteration 1/1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "overrides",
    [
        ["advantage=agent_wise"],
        ["advantage=turn_wise"],
        ["advantage=rloo"],
        ["advantage=dr_grpo", "batching.constant_length=8"],
        ["advantage=grpo", "sampler=parallel", "sampler.trajectories=2", "sampler.credit=outcome"],
        ["advantage=grpo_pooled", "sampler=parallel", "sampler.trajectories=2", "sampler.credit=return_to_go"],
        ["sampler=parallel", "sampler.trajectories=2", "batching.aggregation=trajectory_mean", "logger=null"],
        ["sampler.credit=continuation", "sampler.train_continuations=true"],
        ["sampler.credit=backup", "sampler/selection=softmax"],
        ["sampler.order=parallel", "sampler/selection=epsilon_greedy"],
        ["agents.tool=calculator", "batching.minibatches=2", "batching.ppo_epochs=2", "loss.entropy=0.01"],
        ["group_filter.mode=replace", "loss.ratio_level=sequence", "batching.aggregation=sequence_mean"],
        ["policy=lora", "policy.model=tiny", "agents.tool=calculator", "loss.kl=0.1", "optimizer=adamw8bit"],
        ["loss.kl=0.1", "batching.minibatches=2"],
        [
            "callbacks={stop: {_target_: lightning.pytorch.callbacks.EarlyStopping, monitor: heldout/greedy/success}}",
            "heldout.every=1",
        ],
        ["callbacks.mine._target_=lightning.pytorch.callbacks.Timer", "chat_template.enable_thinking=false"],
        ["workers=2", "logger=csv", "schedule.name=cosine", "schedule.warmup=0.5"],
    ],
    ids=lambda overrides: " ".join(overrides),
)
def test_every_setting_runs(overrides: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parallel = "sampler=parallel" in overrides
    recipe = tmp_path / "small.yaml"
    recipe.write_text(
        "defaults: [config, _self_]\nagents: {tool: solver, reasoner: solver}\nsampler: {turns: 2, max_tokens: 8}\n"
    )
    k = [] if parallel else ["sampler.branches=2"]
    assert main(["fit", "--config", str(recipe), f"run.root={tmp_path}", *SMALL, *k, *overrides]) == 0
    assert "iteration 1/1" in capsys.readouterr().out
