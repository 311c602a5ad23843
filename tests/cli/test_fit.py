"""One whole run with the real vLLM engine, and all that can be done with what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer

from atgrpo.cli.main import main
from atgrpo.engines.base import generate
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.types import Request, Sampling

TAGS = {
    "rollout/success",
    "rollout/success_turn_2",
    "rollout/tool/reward",
    "rollout/tool/valid_actions",
    "rollout/reasoner/response_length",
    "rollout/reasoner/truncated",
    "rollout/tokens_per_second",
    "turn_1/tool/team_reward",
    "turn_2/reasoner/local_reward",
    "group/size",
    "group/zero_variance",
    "group/singleton",
    "group/advantage_std",
    "policy/solver/ratio",
    "policy/solver/clip_fraction",
    "policy/solver/kl_to_behaviour",
    "policy/solver/entropy",
    "policy/solver/grad_norm",
    "policy/solver/learning_rate",
    "policy/solver/logprob_mismatch",
    "engine/prefix_cache_hit_rate",
    "seconds/sync",
    "seconds/rollout",
    "seconds/train",
    "heldout/greedy/success",
    "heldout/greedy/success_turn_1",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    settings = ["engine=vllm", "env._target_=tests.cli.letters.Letters", "optimizer.weight_decay=0"]
    assert main(["fit", "--config", "debug", f"run.root={root}", "run.name=one", *settings]) == 0
    return root / "debug" / "one"


def test_tensorboard_shows_the_run_against_the_iteration(run: Path) -> None:
    events = EventAccumulator(str(run))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= TAGS
    assert [e.step for e in events.Scalars("rollout/success")] == [0, 1]
    assert [e.step for e in events.Scalars("heldout/greedy/success")] == [0, 1, 2]
    assert all(e.value > 0 for e in events.Scalars("policy/solver/trained_tokens"))
    (text, _) = events.Tensors("rollout/tree/text_summary")
    shown = text.tensor_proto.string_val[0].decode()
    assert "gold answer" in shown and "advantage" in shown and "> " in shown


def test_the_engine_agrees_with_the_trainer_in_float32(run: Path) -> None:
    events = EventAccumulator(str(run))
    events.Reload()
    assert max(e.value for e in events.Scalars("policy/solver/logprob_mismatch_max")) < 1e-4
    assert max(abs(e.value - 1) for e in events.Scalars("policy/solver/ratio")) < 1e-6


def test_training_changes_every_parameter(run: Path) -> None:
    (folder,) = (run / "checkpoints").glob("iteration_*")
    trained = torch.load(folder / "state.ckpt", weights_only=True)["state_dict"]
    start = dict(AutoModelForCausalLM.from_pretrained(_tiny()).named_parameters())
    assert trained.keys() == {f"policies.solver.packed.model.{name}" for name in start}
    for name, tensor in start.items():
        assert not torch.equal(trained[f"policies.solver.packed.model.{name}"], tensor), name


def test_evaluate_scores_a_checkpoint_without_the_tree(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "--config", "debug", "--checkpoint", str(run), "--problems", "3", "engine=transformers"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "weights after iteration 2" in out
    assert "held-out success (greedy, 3 problems)" in out and "held-out success (sampled, 3 problems)" in out


def test_evaluate_lets_one_agent_play_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "--config", "debug", "--agents", "tool", "--problems", "2", "engine=transformers"]
    assert main(command) == 0
    assert "2 problems" in capsys.readouterr().out


def test_rollout_prints_a_tree_in_which_the_second_agent_sees_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rollout", "--config", "debug", "--index", "1", "engine=transformers"]
    assert main([*command, "env._target_=tests.cli.letters.Letters", "sampler.turns=1"]) == 0
    tool, reasoner = capsys.readouterr().out.split("turn 1, tool (solver)")[1].split("turn 1, reasoner (solver)")
    (kept,) = [line for line in tool.splitlines() if line.startswith("  > ")]
    text = kept.split("advantage ")[1].split("  ", 1)[1].removesuffix(" [cut]")
    assert "".join(text.replace(" / ", "").split()) in reasoner.split("\n")[1]
    assert (tool + reasoner).count("advantage") == 6
    assert main(["rollout", "--config", "debug", "--index", "-1", "engine=transformers"]) == 2


def test_an_export_loads_in_transformers_and_in_vllm(run: Path, tmp_path: Path) -> None:
    assert main(["export", "--config", "debug", "--checkpoint", str(run), "--to", str(tmp_path / "out")]) == 0
    folder = tmp_path / "out" / "solver"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tuple(tokenizer("2+3=")["input_ids"])
    engine = VLLMEngine({"solver": folder}, dtype="float32", max_model_len=256, kv_cache_gb=0.0625, enforce_eager=True)
    try:
        (completion,) = generate(engine, [Request("solver", ids, 1, Sampling(4, 0.0), 0)])[0]
    finally:
        engine.close()
    with torch.no_grad():
        expected = int(model(torch.tensor([ids])).logits[0, -1].argmax())
    assert completion.token_ids[0] == expected
    assert main(["export", "--config", "debug", "--checkpoint", str(run), "--to", str(tmp_path / "out")]) == 2


def test_a_checkpoint_of_other_policies_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "--config", "debug", "--checkpoint", str(run), "agents.tool=other", "engine=transformers"]
    assert main(command) == 2
    assert "does not fit the recipe's policies" in capsys.readouterr().err


def _tiny() -> Path:
    from atgrpo.policies.sources import model_folder

    return model_folder("tiny")


def test_data_of_another_task_are_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "sudoku", "data=plan_path", "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith("error: sample 'train-0': ")
