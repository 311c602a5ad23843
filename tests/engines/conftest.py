"""Two tiny policies, served by each real engine, and the trainer's own copies of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from atgrpo.engines.base import Engine
from atgrpo.engines.transformers import TransformersEngine
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.policies.sources import model_folder

POLICIES = {"tied": "tiny", "untied": "tiny-untied"}
ADVICE = {"do_sample": True, "temperature": 0.2, "top_k": 2, "top_p": 0.3, "repetition_penalty": 2.0}
"""What a folder may recommend for chatting; none of it is the distribution that is trained."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    copies = {}
    for policy, name in POLICIES.items():
        copies[policy] = tmp_path_factory.mktemp("models") / policy
        shutil.copytree(model_folder(name), copies[policy])
        file = copies[policy] / "generation_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | ADVICE))
    return copies


@pytest.fixture(scope="session")
def vllm_engine(folders: Mapping[str, Path]) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(folders, dtype="float32", max_model_len=1024, kv_cache_gb=0.0625, enforce_eager=True)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def transformers_engine(folders: Mapping[str, Path]) -> TransformersEngine:
    return TransformersEngine(folders, batch_size=16)


@pytest.fixture
def trainers(folders: Mapping[str, Path]) -> dict[str, LlamaForCausalLM]:
    return {policy: load(folder) for policy, folder in folders.items()}


@pytest.fixture(params=["vllm", "transformers"])
def engine(request: pytest.FixtureRequest, trainers: Mapping[str, LlamaForCausalLM]) -> Engine:
    """Each real engine, with the weights of the folders, whatever the test before pushed."""
    served: Engine = request.getfixturevalue(f"{request.param}_engine")
    for policy, model in trainers.items():
        served.load_weights(policy, model.named_parameters())
    return served


@pytest.fixture
def vllm(vllm_engine: VLLMEngine, trainers: Mapping[str, LlamaForCausalLM]) -> VLLMEngine:
    """vLLM with the weights of the folders."""
    for policy, model in trainers.items():
        vllm_engine.load_weights(policy, model.named_parameters())
    return vllm_engine


@pytest.fixture
def perturb() -> Callable[[torch.nn.Module], None]:
    def add_noise(model: torch.nn.Module) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))

    return add_noise


def load(folder: Path) -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
