"""The fallback's own arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from atgrpo.engines.base import generate
from atgrpo.engines.transformers import TransformersEngine, draw, sampling_logprobs
from atgrpo.functional.logprobs import token_logprobs
from atgrpo.types import Sampling
from tests.engines.helpers import PROMPT, ask, gap, ids


def test_temperature_divides_the_logits() -> None:
    logprobs = sampling_logprobs(torch.tensor([[2.0, 1.0, 0.0]] * 2), [Sampling(1, 0.5), Sampling(1, 0.0)])
    assert logprobs[:, 1].tolist() == pytest.approx([-2.1429, -1.4076], abs=1e-4)


def test_sampled_log_probs_are_not_renormalised_so_an_unchanged_policy_has_ratio_one() -> None:
    # Cut to a nucleus of .8 they would be ln 2/3 and ln 1/3, and the ratio .9.
    logits = torch.tensor([[0.6, 0.3, 0.1]]).log()
    sampled = sampling_logprobs(logits, [Sampling(1)])
    torch.testing.assert_close(sampled.exp(), torch.tensor([[0.6, 0.3, 0.1]]))
    for token in range(3):
        trained, _ = token_logprobs(logits, torch.tensor([token]), temperature=1.0)
        assert (trained - sampled[:, token]).exp().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (0.24, 1), (0.26, 3), (0.9999999999, 3)])
def test_draw_inverts_the_distribution_and_skips_impossible_tokens(uniform: float, token: int) -> None:
    logprobs = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).log()
    assert draw(logprobs, torch.tensor([uniform], dtype=torch.float64)).tolist() == [token]


@given(st.lists(st.floats(-20, 20), min_size=1, max_size=8), st.floats(0, 1, exclude_max=True))
def test_every_draw_is_a_possible_token(logits: list[float], uniform: float) -> None:
    logprobs = torch.log_softmax(torch.tensor([logits]), -1)
    [token] = draw(logprobs, torch.tensor([uniform], dtype=torch.float64)).tolist()
    assert math.isfinite(logprobs[0, token])


def test_sampled_frequencies_follow_the_reported_probabilities(
    transformers_engine: TransformersEngine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    transformers_engine.load_weights("tied", trainers["tied"].named_parameters())
    [completions] = generate(transformers_engine, [ask(n=3000, max_tokens=1, temperature=0.3)])
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in completions]), minlength=104)
    logits = trainers["tied"](input_ids=torch.tensor([PROMPT])).logits[0, -1]
    probs = torch.softmax(logits / 0.3, -1)
    assert float((counts / 3000 - probs).abs().max()) < 4 * math.sqrt(0.25 / 3000)


def test_left_padding_and_leaving_the_batch_early_change_nothing(
    transformers_engine: TransformersEngine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    transformers_engine.load_weights("untied", trainers["untied"].named_parameters())
    requests = [ask("untied", PROMPT[:k], n=2, max_tokens=k, seed=k) for k in (2, 5, 11, 30)]
    for request, completions in zip(requests, generate(transformers_engine, requests), strict=True):
        assert gap(trainers["untied"], request, completions) < 1e-5
        assert ids(completions) == ids(generate(transformers_engine, [request])[0])


def test_only_float32_is_exact(folders: Mapping[str, Path], transformers_engine: TransformersEngine) -> None:
    half = TransformersEngine({"x": folders["tied"]}, dtype="bfloat16")
    [[completion]] = generate(half, [ask("x", n=1, max_tokens=3)])
    assert completion.token_ids
    assert (transformers_engine.exact, half.exact) == (True, False)
    assert "bfloat16" in half.name


def test_the_engines_weights_are_its_own(
    transformers_engine: TransformersEngine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    transformers_engine.load_weights("tied", trainers["tied"].named_parameters())
    [before] = generate(transformers_engine, [ask()])
    with torch.no_grad():
        trainers["tied"].model.norm.weight.mul_(2)
    [after] = generate(transformers_engine, [ask()])
    assert after == before
