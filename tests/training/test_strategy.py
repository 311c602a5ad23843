"""Two real gloo processes against one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from atgrpo.policies.sources import model_folder
from tests.training.fixed_steps import STEPS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """``one``, ``first`` and ``second``: what the only rank and the two ranks ended with."""
    folders = {n: tmp_path_factory.mktemp(f"ranks{n}") for n in (1, 2)}
    command = [sys.executable, "-m", "tests.training.fixed_steps"]
    for processes, folder in folders.items():
        done = subprocess.run([*command, folder, str(processes)], cwd=ROOT, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
    names = {"one": (1, 0), "first": (2, 0), "second": (2, 1)}
    return {name: torch.load(folders[n] / f"rank_{r}.pt", weights_only=True) for name, (n, r) in names.items()}


def of(trained: dict[str, Any], step: str, what: str) -> list[Any]:
    """What the only rank, the first and the second of two saw in a step."""
    return [trained[who]["steps"][list(STEPS).index(step)][what] for who in ("one", "first", "second")]


def test_two_processes_end_with_the_weights_of_one(trained: dict[str, Any]) -> None:
    one, first, second = (trained[who]["weights"] for who in ("one", "first", "second"))
    assert one.keys() == first.keys() == second.keys()
    for name, weight in one.items():
        torch.testing.assert_close(first[name], weight, rtol=0, atol=1e-5, msg=name)
        assert torch.equal(first[name], second[name])


def test_tokens_count_alike_however_they_are_divided(trained: dict[str, Any]) -> None:
    assert [tokens["a"] for tokens in of(trained, "900 tokens against 100", "tokens")] == [1000, 900, 100]
    for step in STEPS:
        one, first, second = of(trained, step, "metrics")
        assert first == second
        for policy in "abcd":
            assert first[policy]["trained_tokens"] == one[policy]["trained_tokens"]
            assert first[policy]["loss"] == pytest.approx(one[policy]["loss"], abs=1e-6)
            assert first[policy]["grad_norm"] == pytest.approx(one[policy]["grad_norm"], rel=1e-5)


@pytest.mark.parametrize(
    ("step", "tokens"), [("nothing of b for the second rank", [12, 12, 0]), ("nothing to learn", [0, 0, 0])]
)
def test_a_rank_without_rows_of_a_policy_takes_part_with_nothing(
    trained: dict[str, Any], step: str, tokens: list[int]
) -> None:
    assert [seen["b"] for seen in of(trained, step, "tokens")] == tokens
    assert [seen["b"] for seen in of(trained, step, "microbatches")] == [1, 1, 1]


def test_gradients_are_added_up_once_for_a_step_of_several_pieces(trained: dict[str, Any]) -> None:
    assert [seen["a"] for seen in of(trained, "eight pieces", "microbatches")] == [8, 4, 4]
    # Two layers and the rest of a and of b; of c and d only the layers, where their adapters are.
    assert of(trained, "eight pieces", "added up") == [0, 10, 10]
    assert of(trained, "about as much for each rank", "added up") == [0, 10, 10]


def test_adapters_learn_on_two_ranks_and_their_base_stays(trained: dict[str, Any]) -> None:
    base = AutoModelForCausalLM.from_pretrained(model_folder("tiny")).state_dict()
    weights = trained["first"]["weights"]
    for name, tensor in base.items():
        kept = [weights[n] for n in weights if n.startswith("c.") and n.replace(".base_layer", "").endswith(name)]
        assert all(torch.equal(weight, tensor) for weight in kept), name
    for policy in "cd":
        assert all(weights[n].any() for n in weights if n.endswith(f"lora_B.{policy}.weight"))
