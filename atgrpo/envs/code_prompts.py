"""What coder and tester read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atgrpo.envs.code_judge import Verdict
from atgrpo.envs.code_tests import Case, awaited, called, written
from atgrpo.envs.shown import head
from atgrpo.types import Message

MOST_SHOWN = 3
"""Failed tests that the coder reads."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A solved problem. None like it is in the data."""

    prompt: str
    function: str | None
    program: str
    tests: tuple[Case, ...]


FUNCTION_SHOTS = (
    Demonstration(
        "Write f(n) that returns n plus 100.",
        "f",
        "def f(n):\n    return n + 100",
        (Case("[2]", "102"), Case("[5]", "105"), Case("[0]", "100"), Case("[11]", "111")),
    ),
    Demonstration(
        "Write f(xs) that returns the largest of xs minus 60.",
        "f",
        "def f(xs):\n    return max(xs) - 60",
        (Case("[[70, 5]]", "10"), Case("[[61]]", "1"), Case("[[1, 2, 99]]", "39"), Case("[[60, 3]]", "0")),
    ),
    Demonstration(
        "Write f(a, b) that returns a times b plus 50.",
        "f",
        "def f(a, b):\n    return a * b + 50",
        (Case("[2, 3]", "56"), Case("[4, 5]", "70"), Case("[1, 7]", "57"), Case("[0, 8]", "50")),
    ),
)
STDIN_SHOTS = (
    Demonstration(
        "Read two numbers, one a line. Print their product.",
        None,
        "a = int(input())\nb = int(input())\nprint(a * b)",
        (Case("2\n3\n", "6\n"), Case("4\n5\n", "20\n"), Case("1\n7\n", "7\n"), Case("0\n8\n", "0\n")),
    ),
    Demonstration(
        "Read one line. Print it twice, with a dash in between.",
        None,
        "s = input()\nprint(s + '-' + s)",
        (Case("ab\n", "ab-ab\n"), Case("x\n", "x-x\n"), Case("12\n", "12-12\n"), Case("no\n", "no-no\n")),
    ),
    Demonstration(
        "Read numbers on one line. Print the largest plus 100.",
        None,
        "print(max(map(int, input().split())) + 100)",
        (Case("2 3\n", "103\n"), Case("7\n", "107\n"), Case("5 1 4\n", "105\n"), Case("0 8\n", "108\n")),
    ),
)


def ask(agent: str, prompt: str, function: str | None, examples: Sequence[Case], tests: int) -> str:
    """The problem, examples, and the form of the answer."""
    lines = [prompt]
    if function is None:
        lines += [f"Example:\n{written(case, None)}" for case in examples]
        form = {
            "coder": "Write a program that reads stdin and prints the answer, in a ```python block.",
            "tester": f"Write {tests} tests, each as an ```input block and an ```output block.",
        }
    else:
        lines += [f"Example: {written(case, function)}" for case in examples]
        form = {
            "coder": f"Define {function} in a ```python block.",
            "tester": f"Write {tests} tests, one a line: {function}(...) == ...",
        }
    return "\n".join([*lines, form[agent]])


def program_block(source: str) -> str:
    """A program as the coder writes it."""
    return f"```python\n{source}\n```"


def test_lines(cases: Sequence[Case], function: str | None) -> str:
    """Tests as the tester writes them."""
    return "\n".join(written(case, function) for case in cases)


def demonstrate(agent: str, shot: Demonstration, examples: int, tests: int) -> list[Message]:
    """A solved problem as a question and an answer. The tester's tests are other ones than the examples."""
    user = ask(agent, shot.prompt, shot.function, shot.tests[:examples], tests)
    spare = shot.tests[examples:][:tests]
    answer = program_block(shot.program) if agent == "coder" else test_lines(spare, shot.function)
    return [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]


def news(
    agent: str, function: str | None, program: bool, cases: Sequence[Case], verdicts: Sequence[Verdict], fault: str
) -> str:
    """What happened since the agent spoke; ``verdicts`` is empty where the tests were not run."""
    if fault:
        lines = [f"Not usable: {head(fault, 80)}."]
    elif agent == "coder" and not cases:
        lines = ["There are no tests yet."]
    elif agent == "tester" and not program:
        lines = ["There is no program yet."]
    elif not verdicts:
        lines = ["The tests could not be run."]
    elif agent == "coder":
        failed = [(case, verdict) for case, verdict in zip(cases, verdicts, strict=True) if not verdict.passed]
        lines = [_outcome(case, verdict, function) for case, verdict in failed[:MOST_SHOWN]]
    else:
        lines = [_outcome(case, verdict, function) for case, verdict in zip(cases, verdicts, strict=True)]
    again = "Write the program again." if agent == "coder" else "Write the tests again."
    return "\n".join([*lines, again])


def _outcome(case: Case, verdict: Verdict, function: str | None) -> str:
    said = f"{head(called(case, function), 120)} {head(verdict.got, 90)}"
    says = "as the test says" if verdict.passed else f"the test says {head(awaited(case, function), 60)}"
    return f"{said}, {says}"
