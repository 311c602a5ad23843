"""What a model wrote and reads again: no control token, no half character, but programs and tags as they were."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.envs.code_prompts import program_block
from atgrpo.envs.math import MathTeam
from atgrpo.envs.math_python import PythonMathTeam
from atgrpo.envs.short_answers import clipped
from atgrpo.envs.shown import excerpt, harmless, head
from tests.envs.helpers import SAMPLE, act, chat

TOKENS = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<s>",
    "</s>",
    "<bos>",
    "<eos>",
    "<pad>",
    "<unk>",
    "<mask>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<unused7>",
    "<reserved_106>",
    "<extra_id_0>",
    "<0x0A>",
    "<fim_prefix>",
    "<SYS>",
    "</SYS>",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("show", [lambda t: head(t, 99), lambda t: excerpt(t, 99), lambda t: clipped(t, 99)])
def test_every_way_to_show_a_text_breaks_every_control_token(show: object, token: str) -> None:
    assert callable(show)
    assert show(f"a{token}b") == f"a{token[0]} {token[1:]}b"


@pytest.mark.parametrize(
    "text",
    [
        "for i in range(n):\n    if a<b and x[i] <= y[-1] or 1<<3 > c[j][k]:\n        d: list[int] = [N]",
        "print('a -> b', f'{x:<5}', x<y, x<-1, {1: [2]}, dp[i][MX], lst[ 0 ], '<=', '<>')",
        "<answer>y</answer> <think>\n</think> <tool_call>{}</tool_call> <b>",
        r"\boxed{[1, 2)} and 3 < 4",
    ],
)
def test_programs_and_tags_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text
    assert program_block(head(text, 200)) == f"```python\n{text}\n```"


@pytest.mark.parametrize("show", [harmless, lambda t: excerpt(t, 99), lambda t: clipped(t, 99)])
def test_half_a_character_is_shown_as_a_question_mark(show: object) -> None:
    assert callable(show)
    assert show("a\ud800b\udfff") == "a?b?"


@given(st.lists(st.sampled_from([*TOKENS, "<", "[", "]", ">", "|", " ", "s", "INST", "\ud800"]), max_size=12))
def test_repeating_it_changes_nothing_and_any_text_can_be_encoded(parts: list[str]) -> None:
    once = harmless("".join(parts))
    assert harmless(once) == once
    assert once.encode().decode() == once
    assert not any(token in once for token in TOKENS)


@given(st.text(st.sampled_from("<|s/>[]INSTstart_of_turnim_endend "), max_size=60), st.integers(1, 40))
def test_an_excerpt_is_short_and_spells_no_control_token(text: str, limit: int) -> None:
    seen = excerpt(text, limit)
    assert not any(token in seen for token in ("<|", "<s>", "</s>", "<start_of_turn>", "<end_of_turn>", "[INST]"))
    assert len(seen.replace("< ", "<").replace("[ ", "[")) <= limit + len("...")


def test_a_head_is_the_text_as_it_was_and_an_excerpt_says_where_it_was_cut() -> None:
    assert [head(" ab c ", limit) for limit in (2, 4, 9)] == [" a", " ab ", " ab c "]
    assert [excerpt(" ab c ", limit) for limit in (2, 3, 4)] == ["ab...", "ab...", "ab c"]


@pytest.mark.parametrize(
    "text", ["<" * 200_000, "<unused" * 28_000, "<start_of_" * 20_000, "[" + "A" * 200_000, "[A" * 100_000]
)
def test_a_long_text_is_read_once(text: str) -> None:
    start = time.process_time()
    harmless(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("env", [MathTeam(), PythonMathTeam()])
def test_a_failed_call_of_the_math_teams_spells_no_control_token(env: MathTeam) -> None:
    env.reset(SAMPLE)
    act(env, "tool", "</s>[INST]<start_of_turn>\ud800")
    seen = "\n".join(content for agent in env.roles for _, content in chat(env, agent))
    assert not any(token in seen for token in ("</s>", "[INST]", "<start_of_turn>", "\ud800"))
    assert "< /s>[ INST]< start_of_turn>?" in seen
