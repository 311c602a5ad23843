"""Which answers a scorer of reasoning-gym is asked about."""

from __future__ import annotations

from typing import Any

import pytest

from atgrpo.envs.reasoning_gym import is_finite, judged
from atgrpo.types import Sample


@pytest.mark.parametrize(
    ("text", "finite"),
    [
        *(
            (text, False)
            for text in ("nan", "-inf", "1 + Infinity", "infi", "NANJ", "1e999", "x = 2.5E+400", "9" * 310)
        ),
        *((text, True) for text in ("banana", "inform", "1e300", "infinitely", "nano", "", "1 2 3 " * 200, "∞")),
    ],
)
def test_which_answers_are_finite(text: str, finite: bool) -> None:
    assert is_finite(text) is finite


def test_a_gold_answer_with_such_a_word_or_as_many_digits_can_be_reached_and_approached() -> None:
    seen: list[str] = []

    def score(answer: str, entry: dict[str, Any]) -> float:
        seen.append(answer)
        return 0.5

    for gold, answer in (("inf nan", "nan inf"), ("01" * 200, "10" * 200)):
        sample = Sample("s", "?", gold, {"reasoning_gym": {"task": "word_sorting", "settings": {}, "answer": gold}})
        assert judged(score, sample, answer) == 0.5
    assert seen == ["nan inf", "10" * 200]
