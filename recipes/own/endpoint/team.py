"""A team that knows nothing of the trainer: two agents, written with urllib and an address."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.request import ProxyHandler, Request, build_opener

from atgrpo.envs.arithmetic import ArithmeticSyntaxError, evaluate, to_text
from atgrpo.envs.external import Client, Result
from atgrpo.types import Sample

EXAMPLES = (
    ("Kim has 4 boxes with 6 apples each and 5 loose apples. How many apples in total?", "4*6+5"),
    ("Joe bakes 5 trays of 4 cookies and eats 8. How many cookies are left?", "5*4-8"),
    ("Amy had 21 coins, spent 7 and gave away 6. How many coins are left?", "21-7-6"),
)
opener = build_opener(ProxyHandler({}))
"""The address is this machine's own: no proxy stands before it."""


def play(client: Client, sample: Sample) -> Result:
    """A writer turns the problem into an expression, a checker sees its value and answers.

    The team's reward is whether the answer is right. The writer pays for text that is no expression.
    """
    chat = [("system", "Write one arithmetic expression for the problem.")]
    for problem, expression in EXAMPLES:
        chat += [("user", problem), ("assistant", expression)]
    call, written = ask(client, "writer", [*chat, ("user", sample.prompt)])
    chat = [("system", "Answer with a number.")]
    for problem, expression in EXAMPLES:
        chat += [("user", with_value(problem, expression)), ("assistant", value_of(expression))]
    _, answer = ask(client, "checker", [*chat, ("user", with_value(sample.prompt, written))])
    return Result(team=float(answer.strip() == sample.answer), local={call: -1.0 if value_of(written) == "?" else 0.0})


def ask(client: Client, role: str, chat: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Id and text of what ``role`` answers."""
    body = {"model": role, "messages": [{"role": speaker, "content": text} for speaker, text in chat]}
    headers = {"Authorization": f"Bearer {client.api_key}", "Content-Type": "application/json"}
    request = Request(f"{client.base_url}/chat/completions", json.dumps(body).encode(), headers)
    with opener.open(request) as reply:
        completion = json.load(reply)
    return completion["id"], completion["choices"][0]["message"]["content"]


def with_value(problem: str, expression: str) -> str:
    """The problem as the checker sees it. What a model wrote is cut, and cannot spell a control token."""
    shown = " ".join(expression.split())[:40].replace("<|", "< |")
    return f"{problem}\n{shown} = {value_of(expression)}"


def value_of(expression: str) -> str:
    """Its value; a question mark if it has none."""
    try:
        return to_text(evaluate(expression))
    except ArithmeticSyntaxError:
        return "?"
