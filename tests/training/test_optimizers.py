from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from atgrpo.paths import conf_dir
from atgrpo.training.optimizers import AdamW8bit, merge_local_states
from tests.training.sharded_optimizers import SAVED_AFTER, STEPS, resumed, two_processes

ALIGNED = ["up.weight", "up.bias", "ragged.weight", "one_row.weight", "pair.weight"]
LR = 1e-4


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return two_processes(tmp_path_factory.mktemp("two"))


def largest_difference(a: dict[str, Tensor], b: dict[str, Tensor], *, shifted: bool) -> float:
    names = [name for name in a if (name == "shifted.weight") == shifted]
    return max(float((a[name] - b[name]).abs().max()) for name in names)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def stepped(p: nn.Parameter, optimizer: AdamW8bit, gradient: Tensor) -> None:
    p.grad = gradient.clone()
    optimizer.step()


def parameter_and_optimizer() -> tuple[nn.Parameter, AdamW8bit]:
    p = nn.Parameter(torch.ones(2, 256))
    return p, AdamW8bit([p], lr=0.1, weight_decay=0.01, min_8bit_size=512)


def test_the_first_step_is_adamw_by_hand() -> None:
    p, optimizer = parameter_and_optimizer()
    stepped(p, optimizer, torch.tensor([[0.5], [-0.25]]).expand(2, 256))
    # 1 - 0.1 * 0.01 is 0.999, and every element moves by the whole rate against its gradient.
    assert torch.allclose(p, torch.tensor([[0.899], [1.099]]).expand(2, 256), atol=1e-6)
    state = optimizer.state[p]
    assert torch.allclose(state["absmax1"], torch.tensor([0.05, 0.025]))
    assert torch.allclose(state["absmax2"], torch.tensor([0.25e-3, 0.0625e-3]))
    assert state["state1"].dtype == torch.uint8
    # The last code stands for 1, the first one for -0.993: there is none for -1.
    assert state["state1"].unique(dim=1).tolist() == [[255], [0]]
    assert state["state2"].unique().tolist() == [255]


def test_a_restored_state_is_the_same_bit_for_bit_and_goes_on_the_same(tmp_path: Path) -> None:
    p, optimizer = parameter_and_optimizer()
    gradients = torch.randn(4, 2, 256)
    for gradient in gradients[:2]:
        stepped(p, optimizer, gradient)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    q = nn.Parameter(p.detach().clone())
    other = AdamW8bit([q], lr=7.0, min_8bit_size=512)
    other.load_state_dict(saved)
    assert same(other.state_dict(), optimizer.state_dict())
    assert other.param_groups[0]["lr"] == 0.1
    for gradient in gradients[2:]:
        stepped(p, optimizer, gradient)
        stepped(q, other, gradient)
    assert torch.equal(p, q)
    assert same(other.state_dict(), optimizer.state_dict())


def test_half_precision_parameters_keep_float32_scales_and_small_moments_through_a_restore() -> None:
    params = [nn.Parameter(torch.ones(n, dtype=torch.bfloat16)) for n in (512, 3)]
    optimizer, other = (AdamW8bit(params, min_8bit_size=512) for _ in range(2))
    for p in params:
        p.grad = torch.randn(p.shape).bfloat16()
    optimizer.step()
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert same(other.state_dict(), optimizer.state_dict())
    assert other.state[params[0]]["absmax1"].dtype == other.state[params[1]]["state1"].dtype == torch.float32


def test_a_state_from_before_the_first_step_is_empty_and_empties_what_loads_it() -> None:
    p, optimizer = parameter_and_optimizer()
    before = optimizer.state_dict()
    assert before["state"] == {}
    stepped(p, optimizer, torch.ones(2, 256))
    optimizer.load_state_dict(before)
    assert optimizer.state_dict()["state"] == {}
    stepped(p, optimizer, torch.ones(2, 256))
    assert optimizer.state[p]["step"] == 1


def test_two_ranks_step_as_one_process_does(ranks: list[dict[str, Any]]) -> None:
    alone, together = ranks[0]["alone"]["weights"], ranks[0]["together"]["weights"]
    assert len(alone) == len(together) == STEPS
    for one, two in zip(alone, together, strict=True):
        assert largest_difference(one, two, shifted=False) <= 1e-6
        # Other blocks, other rounding of the moments: a small part of a step.
        assert largest_difference(one, two, shifted=True) <= LR / 4


def test_the_whole_size_decides_which_moments_are_8_bit(ranks: list[dict[str, Any]]) -> None:
    for end in (rank[how]["end"] for rank in ranks for how in ("alone", "together")):
        in_bytes = {name for name, state in end.items() if state["state1"].dtype == torch.uint8}
        assert in_bytes == {*ALIGNED, "shifted.weight"}


def test_each_rank_holds_the_moments_of_its_own_rows(ranks: list[dict[str, Any]]) -> None:
    sizes = [[rank["together"]["end"][name]["state1"].numel() for name in ALIGNED] for rank in ranks]
    assert sizes == [[2048, 256, 3 * 512, 512, 256], [2048, 256, 2 * 512, 0, 256]]


@pytest.mark.parametrize("name", ["one_row.weight", "one_row.bias"])
def test_a_rank_without_rows_counts_its_steps(ranks: list[dict[str, Any]], name: str) -> None:
    state = ranks[1]["together"]["end"][name]
    assert state["state1"].numel() == 0
    assert state["step"] == STEPS


def test_two_ranks_resume_bit_for_bit(ranks: list[dict[str, Any]]) -> None:
    left_alone = ranks[0]["together"]["weights"][SAVED_AFTER:]
    for rank in ranks:
        assert all(same(a, b) for a, b in zip(rank["resumed"], left_alone, strict=True))


def test_one_process_resumes_from_the_states_of_two_ranks(ranks: list[dict[str, Any]]) -> None:
    merged = merge_local_states([rank["together"]["state"] for rank in reversed(ranks)])
    together = ranks[0]["together"]["weights"]
    for one, two in zip(resumed(together[SAVED_AFTER - 1], merged, sharded=False), together[SAVED_AFTER:], strict=True):
        assert largest_difference(one, two, shifted=False) <= 1e-6
        assert largest_difference(one, two, shifted=True) <= LR / 4


def test_two_ranks_resume_from_the_state_of_one_process(ranks: list[dict[str, Any]]) -> None:
    left_alone = ranks[0]["alone"]["weights"][SAVED_AFTER:]
    for one, two in zip(left_alone, ranks[0]["resumed_from_one"], strict=True):
        assert largest_difference(one, two, shifted=False) <= 1e-6
        assert largest_difference(one, two, shifted=True) <= LR / 4


def test_merged_states_are_the_unsharded_ones_where_blocks_coincide(ranks: list[dict[str, Any]]) -> None:
    merged = merge_local_states([rank["together"]["state"] for rank in ranks])
    alone = ranks[0]["alone"]["state"]
    places = [place for place, state in alone["state"].items() if state["shape"][0] != 6]
    assert len(places) == len(alone["state"]) - 2
    assert all(same(merged["state"][place], alone["state"][place]) for place in places)


def test_a_missing_rank_is_named(ranks: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=r"^states: got the first 2048 of 4096 elements"):
        merge_local_states([ranks[0]["together"]["state"]])


def test_a_shard_of_other_rows_is_refused(ranks: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=r"^state: got elements 2048 to 4096, expected 0 to 4096"):
        resumed(ranks[0]["together"]["weights"][0], ranks[1]["together"]["state"], sharded=False)


@pytest.mark.parametrize(
    ("shapes", "smallest", "message"),
    [
        ([(512,), (3,)], 512, r"^param_groups: got \[1\] parameters in the groups, expected \[2\]$"),
        ([(512,)], 512, r"^state: got a parameter of shape \[2, 256\], expected \[512\]$"),
        ([(2, 256)], 513, r"^state: got moments of torch.uint8, expected torch.float32$"),
    ],
)
def test_a_state_of_other_parameters_is_refused(shapes: list[tuple[int, ...]], smallest: int, message: str) -> None:
    p, optimizer = parameter_and_optimizer()
    stepped(p, optimizer, torch.ones(2, 256))
    other = AdamW8bit([nn.Parameter(torch.ones(shape)) for shape in shapes], min_8bit_size=smallest)
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(optimizer.state_dict())


def test_paged_moments_need_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    make = instantiate(OmegaConf.load(conf_dir() / "optimizer/paged_adamw8bit.yaml"))
    with pytest.raises(ValueError, match=r"^paged: got True on a machine without CUDA, expected a GPU"):
        make([nn.Parameter(torch.ones(3))])


def test_the_shipped_settings_are_those_of_the_32_bit_optimizer() -> None:
    adamw, ours = (
        instantiate(OmegaConf.load(conf_dir() / f"optimizer/{name}.yaml"))([nn.Parameter(torch.ones(3))])
        for name in ("adamw", "adamw8bit")
    )
    shared = ("lr", "betas", "eps", "weight_decay")
    assert [ours.param_groups[0][key] for key in shared] == [adamw.param_groups[0][key] for key in shared]
    assert ours.keeps_local_shards
