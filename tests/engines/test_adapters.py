from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from atgrpo.engines.adapters import Adapter, read_adapters
from atgrpo.engines.base import EngineError
from atgrpo.engines.common import Parameters
from atgrpo.engines.vllm_adapters import VLLMAdapters
from atgrpo.policies.lora import LoRAPolicy


@pytest.fixture(scope="module")
def policy() -> LoRAPolicy:
    return LoRAPolicy("tiny", name="a", r=4, target_modules=["q_proj"])


def test_an_adapter_is_read_with_its_rank_names_and_shapes(policy: LoRAPolicy) -> None:
    adapter = Adapter.of_folder(policy.adapter)
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    shapes = {name.format(i, x): shape for i in (0, 1) for x, shape in (("A", (4, 64)), ("B", (64, 4)))}
    assert adapter.rank == 4
    assert adapter.parameters == Parameters(shapes, tied=False)


def test_an_adapter_is_written_again_with_what_was_received(policy: LoRAPolicy, tmp_path: Path) -> None:
    adapter = Adapter.of_folder(policy.adapter)
    weights = {name: torch.randn(shape) for name, shape in adapter.parameters.shapes.items()}
    adapter.write(tmp_path, adapter.received("a", weights.items()))
    written = load_file(tmp_path / "adapter_model.safetensors")
    assert written.keys() == weights.keys() and all(torch.equal(written[n], weights[n]) for n in weights)
    assert (tmp_path / "adapter_config.json").read_text() == (policy.adapter / "adapter_config.json").read_text()


def test_a_push_that_is_not_exactly_the_adapter_is_an_error(policy: LoRAPolicy) -> None:
    adapter, weights = Adapter.of_folder(policy.adapter), list(policy.export_weights())
    with pytest.raises(EngineError, match=r"policy 'a'.*layers\.1\.self_attn\.q_proj\.lora_B\.weight was not pushed"):
        adapter.received("a", weights[:-1])
    with pytest.raises(EngineError, match=r"lm_head\.weight is unknown"):
        adapter.received("a", [*weights, ("lm_head.weight", torch.ones(1))])


def test_only_policies_with_adapters_on_one_folder_share_a_model(
    policy: LoRAPolicy, folders: Mapping[str, Path]
) -> None:
    tied, untied = folders["tied"], folders["untied"]
    models = {"full": tied, "a": str(tied), "b": tied, "c": untied, "twin": tied}
    read, hosts = read_adapters(models, dict.fromkeys("abc", policy.adapter))
    assert list(read) == ["a", "b", "c"]
    assert hosts == {"full": "full", "a": "a", "b": "a", "c": "c", "twin": "twin"}


def test_an_adapter_without_a_policy_is_refused(policy: LoRAPolicy) -> None:
    with pytest.raises(ValueError, match="adapters: got nobody, expected policies out of a"):
        read_adapters({"a": policy.folder}, {"nobody": policy.adapter})


@pytest.mark.parametrize(("rank", "size"), [(1, 8), (8, 8), (9, 16), (512, 512)])
def test_a_slot_is_the_smallest_that_vllm_has_for_the_rank(rank: int, size: int) -> None:
    adapters = {p: Adapter(Path(), f'{{"r": {r}}}', Parameters({}, tied=False)) for p, r in (("a", rank), ("b", 1))}
    hosts = {"a": "a", "b": "a", "full": "full"}
    slots = VLLMAdapters(adapters, hosts)
    assert slots.settings("a") == {"enable_lora": True, "max_loras": 2, "max_lora_rank": size}
    assert slots.settings("full") == {}


def test_a_rank_that_vllm_cannot_serve_is_refused() -> None:
    adapters = {"a": Adapter(Path(), '{"r": 513}', Parameters({}, tied=False))}
    with pytest.raises(ValueError, match="rank: got 513, expected at most 512"):
        VLLMAdapters(adapters, {"a": "a"}).settings("a")
