from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from atgrpo.engines.base import EngineError
from atgrpo.engines.common import Parameters, stop_ids


def test_parameters_are_read_from_all_shards_without_the_old_rotary_buffer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    save_file({"a": torch.ones(2, 3)}, tmp_path / "model-1.safetensors", metadata={"format": "pt"})
    buffer = "layers.0.rotary_emb.inv_freq"
    save_file({"b": torch.ones(4), buffer: torch.ones(1)}, tmp_path / "model-2.safetensors")
    assert Parameters.of_folder(tmp_path) == Parameters({"a": (2, 3), "b": (4,)}, tied=True)


def test_a_folder_without_safetensors_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no safetensors file"):
        Parameters.of_folder(tmp_path)


def test_many_faults_are_counted_not_listed() -> None:
    parameters = Parameters({f"p{i}": (1,) for i in range(9)}, tied=False)
    with (
        pytest.raises(EngineError, match=r"policy 'x'.*p0 was not pushed.* and 4 more"),
        parameters.checked("x", []) as known,
    ):
        assert list(known) == []


@pytest.mark.parametrize(("listed", "expected"), [(7, {2, 7}), ([7, 8], {2, 7, 8}), (None, {2})])
def test_stop_ids_join_the_tokenizers_and_the_generation_configs(tmp_path: Path, listed, expected: set[int]) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": listed}))
    assert stop_ids(tmp_path, 2) == expected


def test_stop_ids_without_a_generation_config(tmp_path: Path) -> None:
    assert stop_ids(tmp_path, None) == frozenset()
