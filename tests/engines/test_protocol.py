"""What every real engine must do, asked of vLLM and of the fallback alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from atgrpo.engines.base import Engine, EngineError, generate
from atgrpo.types import Sampling
from tests.engines.helpers import LONG_PROMPT, PROMPT, ask, gap, ids

EOS = 3


def test_is_an_engine(engine: Engine) -> None:
    assert isinstance(engine, Engine)
    assert engine.name


@pytest.mark.parametrize("policy", ["tied", "untied"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_the_trainers_before_and_after_updates(
    engine: Engine,
    trainers: Mapping[str, LlamaForCausalLM],
    perturb: Callable[[torch.nn.Module], None],
    policy: str,
    temperature: float,
) -> None:
    model = trainers[policy]
    request = ask(policy, temperature=temperature)
    gaps, answers = [], []
    for _ in range(4):
        [completions] = generate(engine, [request])
        gaps.append(gap(model, request, completions))
        answers.append(ids(completions))
        perturb(model)
        engine.load_weights(policy, model.named_parameters())
    assert max(gaps) < 1e-4
    assert answers[0] != answers[-1]


def test_greedy_takes_the_most_likely_token_and_reports_it(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    request = ask(n=2, temperature=0.0)
    [[first, second]] = generate(engine, [request])
    assert first.token_ids == second.token_ids
    assert all(math.isfinite(logprob) for logprob in first.logprobs)
    assert gap(trainers["tied"], request, [first]) < 1e-4
    logits = trainers["tied"](input_ids=torch.tensor([[*PROMPT, *first.token_ids]])).logits[0, len(PROMPT) - 1 : -1]
    assert tuple(logits.argmax(-1).tolist()) == first.token_ids


def test_the_whole_distribution_is_sampled_whatever_the_folder_recommends(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    request = ask(n=300, max_tokens=1)
    [completions] = generate(engine, [request])
    assert gap(trainers["tied"], request, completions) < 1e-4
    probs = torch.softmax(trainers["tied"](input_ids=torch.tensor([PROMPT])).logits[0, -1], -1)
    rare = set((probs < probs.median()).nonzero()[:, 0].tolist())
    share = sum(completion.token_ids[0] in rare for completion in completions) / 300
    assert share == pytest.approx(float(probs[list(rare)].sum()), abs=4 * math.sqrt(0.25 / 300))
    assert share > 0.1


def test_a_seed_fixes_its_completions_whatever_else_is_in_the_batch(engine: Engine) -> None:
    request = ask(n=4)
    [alone] = generate(engine, [request])
    others = [
        ask(policy, LONG_PROMPT[:k], n=3, max_tokens=20, seed=k) for k in (7, 150, 299) for policy in ("tied", "untied")
    ]
    crowded = generate(engine, [*others[:3], request, *others[3:]])[3]
    assert ids(crowded) == ids(alone)


def test_completion_i_draws_from_seed_plus_i_and_seeds_differ(engine: Engine) -> None:
    [together] = generate(engine, [ask(n=4, seed=100)])
    singles = generate(engine, [ask(n=1, seed=100 + i) for i in range(4)])
    assert ids(together) == [single.token_ids for [single] in singles]
    assert len(set(ids(together))) == 4


def test_two_identical_prompts_with_different_seeds_differ(engine: Engine) -> None:
    one, other = generate(engine, [ask(seed=1), ask(seed=50)])
    assert ids(one) != ids(other)


def test_the_end_of_sequence_token_is_kept_and_lengths_and_reasons_fit(engine: Engine) -> None:
    completions = [
        c for batch in generate(engine, [ask(n=16, max_tokens=40, seed=k * 16) for k in range(4)]) for c in batch
    ]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    cut = [c for c in completions if c.finish_reason == "length"]
    assert stopped and cut
    assert all(c.token_ids[-1] == EOS and EOS not in c.token_ids[:-1] for c in stopped)
    assert all(len(c.token_ids) == 40 and EOS not in c.token_ids for c in cut)
    assert all(len(c.logprobs) == len(c.token_ids) for c in completions)
    assert all("<|im_end|>" not in c.text for c in completions)


def test_text_is_the_ids_decoded(engine: Engine, folders: Mapping[str, str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folders["tied"])
    [completions] = generate(engine, [ask()])
    assert [c.text for c in completions] == [
        tokenizer.decode(c.token_ids, skip_special_tokens=True) for c in completions
    ]


def test_a_single_token_completion(engine: Engine) -> None:
    [[completion]] = generate(engine, [ask(n=1, max_tokens=1)])
    assert len(completion.token_ids) == len(completion.logprobs) == 1


def test_prompt_ids_are_used_as_they_are(engine: Engine, trainers: Mapping[str, LlamaForCausalLM]) -> None:
    # The template's own start token, once; one more anywhere would move every position, and the log-probs with it.
    request = ask(prompt=(2, *PROMPT))
    [completions] = generate(engine, [request])
    assert gap(trainers["tied"], request, completions) < 1e-4
    assert gap(trainers["tied"], replace(request, prompt_ids=(2, *request.prompt_ids)), completions) > 1e-2


def test_requests_of_one_policy_do_not_wait_for_a_longer_one(engine: Engine) -> None:
    engine.submit(0, ask(n=20, max_tokens=300, seed=1))
    engine.submit(1, ask("untied", n=1, max_tokens=2))
    done: list[int] = []
    while len(done) < 2:
        done += [ticket for ticket, _ in engine.step()]
    assert sorted(done) == [0, 1]
    assert engine.step() == []


def test_a_pushed_policy_changes_and_the_other_does_not(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM], perturb: Callable[[torch.nn.Module], None]
) -> None:
    requests = [ask("tied"), ask("untied")]
    tied, untied = generate(engine, requests)
    perturb(trainers["untied"])
    engine.load_weights("untied", trainers["untied"].named_parameters())
    tied_after, untied_after = generate(engine, requests)
    assert tied_after == tied
    assert ids(untied_after) != ids(untied)


def test_cached_prefixes_do_not_outlive_the_weights(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM], perturb: Callable[[torch.nn.Module], None]
) -> None:
    request = ask(prompt=LONG_PROMPT, n=2)
    generate(engine, [request, request])
    perturb(trainers["tied"])
    engine.load_weights("tied", trainers["tied"].named_parameters())
    [completions] = generate(engine, [request])
    assert gap(trainers["tied"], request, completions) < 1e-4


def test_weights_survive_sleep_and_wake_with_a_push(engine: Engine, trainers: Mapping[str, LlamaForCausalLM]) -> None:
    [before] = generate(engine, [ask()])
    engine.sleep()
    engine.wake()
    for policy, model in trainers.items():
        engine.load_weights(policy, model.named_parameters())
    [after] = generate(engine, [ask()])
    assert after == before


@pytest.mark.parametrize("policy", ["tied", "untied"])
def test_a_partial_push_is_an_error_that_names_what_is_missing(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM], policy: str
) -> None:
    weights = dict(trainers[policy].named_parameters())
    del weights["model.norm.weight"]
    with pytest.raises(EngineError, match=r"'\w+'.*model\.norm\.weight was not pushed"):
        engine.load_weights(policy, weights.items())


def test_an_unknown_name_is_an_error_and_the_push_is_walked_to_its_end(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    names = []

    def weights():
        yield "module.model.norm.weight", torch.ones(64)
        for name, parameter in trainers["tied"].named_parameters():
            names.append(name)
            yield name, parameter

    with pytest.raises(EngineError, match=r"module\.model\.norm\.weight is unknown"):
        engine.load_weights("tied", weights())
    assert len(names) == len(dict(trainers["tied"].named_parameters()))


def test_a_shard_instead_of_the_full_tensor_is_an_error(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    weights = dict(trainers["tied"].named_parameters())
    weights["model.norm.weight"] = weights["model.norm.weight"][:32]
    with pytest.raises(EngineError, match=r"model\.norm\.weight is \(32,\), expected \(64,\)"):
        engine.load_weights("tied", weights.items())


def test_a_tied_head_may_be_pushed_too_and_a_missing_untied_one_is_an_error(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    [before] = generate(engine, [ask()])
    engine.load_weights("tied", trainers["tied"].state_dict().items())
    [after] = generate(engine, [ask()])
    assert after == before
    headless = [(n, p) for n, p in trainers["untied"].named_parameters() if n != "lm_head.weight"]
    with pytest.raises(EngineError, match=r"lm_head\.weight was not pushed"):
        engine.load_weights("untied", headless)


def test_a_push_during_sampling_is_an_error(engine: Engine, trainers: Mapping[str, LlamaForCausalLM]) -> None:
    engine.submit(0, ask(n=1, max_tokens=3))
    with pytest.raises(EngineError, match="while it was sampling"):
        engine.load_weights("tied", trainers["tied"].named_parameters())
    while not engine.step():
        pass


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ask("nobody"), "got policy 'nobody'"),
        (ask(n=0), "got n=0"),
        (ask(max_tokens=0), "max_tokens=0"),
        (ask(seed=-1), "got seed -1"),
        (ask(temperature=0.001), "temperature 0.001"),
        (ask(prompt=()), "prompt of 0 tokens"),
        (ask(prompt=(5,) * 4000), "prompt of 4000 tokens"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(engine: Engine, request_, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine.submit(0, request_)
    assert engine.step() == []


def test_a_ticket_in_use_is_refused(engine: Engine) -> None:
    engine.submit(0, ask(n=1, max_tokens=2))
    with pytest.raises(ValueError, match="ticket 0"):
        engine.submit(0, ask(n=1, max_tokens=2))
    while not engine.step():
        pass


def test_sampling_under_training_leaves_gradients_and_random_numbers_alone(
    engine: Engine, trainers: Mapping[str, LlamaForCausalLM]
) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    model = trainers["tied"]
    generate(engine, [replace(ask(), sampling=Sampling(4))])
    engine.load_weights("tied", model.named_parameters())
    assert torch.equal(torch.rand(3), expected)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    model(input_ids=torch.tensor([PROMPT])).logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
