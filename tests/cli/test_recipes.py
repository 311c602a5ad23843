from __future__ import annotations

from pathlib import Path

import pytest

from atgrpo.cli.main import main
from atgrpo.paths import recipes_dir

SMALL = [
    "trainer=auto",
    "policy.model=tiny",
    "engine=transformers",
    "prompts_per_iteration=2",
    "iterations=1",
    "sampler.max_tokens=8",
    "max_prompt_tokens=2000",
    "heldout.problems=2",
    "warm_start.steps=0",
]
MADE_HERE = ["data.train_size=8", "data.heldout_size=4"]
DATA = {
    "math_qwen3": ["data=word_problems"],
    "math_qwen3_lora": ["data=word_problems"],
    "code_qwen3": ["data=simple_functions"],
}
"""In place of what comes from a hub."""


WITH_MODELS = [path for path in sorted(recipes_dir().glob("*.yaml")) if "config_marl" not in path.read_text()]


@pytest.mark.parametrize("recipe", WITH_MODELS, ids=lambda path: path.stem)
def test_every_shipped_recipe_does_one_iteration(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = DATA.get(recipe.stem, []) + MADE_HERE
    assert main(["fit", "--config", str(recipe), f"run.root={tmp_path}", *SMALL, *data]) == 0
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
        ["advantage=dr_mas", "sampler=parallel", "sampler.trajectories=2", "sampler.credit=outcome"],
        ["advantage=gigpo", "sampler=parallel", "sampler.trajectories=2", "sampler.credit=return_to_go"],
        ["advantage=rae", "sampler=parallel", "sampler.trajectories=2", "sampler.credit=outcome"],
        ["advantage=magrpo", "sampler.credit=continuation"],
        ["advantage=c3", "sampler.credit=continuation"],
        ["advantage=treerl", "sampler.credit=continuation"],
        ["advantage=tree_grpo", "sampler.credit=continuation"],
        ["advantage=reinforce_pp"],
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
    assert main(["fit", "--config", str(recipe), f"run.root={tmp_path}", *SMALL, *MADE_HERE, *k, *overrides]) == 0
    assert "iteration 1/1" in capsys.readouterr().out
