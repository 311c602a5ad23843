"""Programs with one number or one comparison changed fail the hidden tests, in the fixed set and in the made one."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

import pytest

from atgrpo.data.small_programs import RULES, Rule, SimpleFunctions, SmallPrograms
from atgrpo.sandbox.calls import call_function
from atgrpo.sandbox.compare import same_output, same_value
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox
from atgrpo.types import Sample

OTHER = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
SAME = {
    ("absolute", "n > 0"),
    ("absolute", "n >= 1"),
    ("larger", "a >= b"),
    ("factorial", "range(1, n + 1)"),
    ("power_of_two", "n >= 1"),
    ("power_of_two", "n > 0"),
}
"""Changes that change nothing."""
ANY = """
import contextlib, io, signal, sys

def late(*_):
    raise TimeoutError

signal.signal(signal.SIGVTALRM, late)

def answers(source, function, inputs):
    got = []
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.1)
    try:
        for given in inputs:
            if function is None:
                out, sys.stdin = io.StringIO(), io.StringIO(given)
                with contextlib.redirect_stdout(out):
                    exec(source, {})
                got.append(out.getvalue())
            else:
                names = {}
                exec(source, names)
                got.append(names[function](*given))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return got
"""


def mutants(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for place in range(sum(1 for _ in ast.walk(tree))):
        for step in (1, -1):
            changed = copy.deepcopy(tree)
            node = list(ast.walk(changed))[place]
            if isinstance(node, ast.Constant) and type(node.value) is int:
                node.value += step
            elif step == 1 and isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
                node.ops[0] = OTHER[type(node.ops[0])]()
            else:
                continue
            yield ast.unparse(changed)


def passing(sample: Sample, sources: list[str]) -> list[str]:
    """Those that pass the hidden tests."""
    function = sample.meta.get("function")
    inputs = [given for given, _ in sample.meta["tests"]]
    limits = Limits(seconds=60, cpu_seconds=60)
    returned = call_function(Sandbox(limits), ANY, "answers", [[source, function, inputs] for source in sources])
    same = same_output if function is None else same_value
    wanted = [result for _, result in sample.meta["tests"]]
    return [
        source
        for source, result in zip(sources, returned, strict=True)
        if result.error is None and all(map(same, result.value, wanted))
    ]


def test_hidden_tests_of_the_fixed_set_notice_another_number_and_another_comparison() -> None:
    data = SmallPrograms()
    survivors = []
    for sample in (*data.split("train"), *data.split("heldout")):
        if sources := list(mutants(sample.meta["reference"])):
            survivors += [(sample.id, source) for source in passing(sample, sources)]
    unknown = [(name, s) for name, s in survivors if not any(name == n and part in s for n, part in SAME)]
    assert unknown == []
    assert len(survivors) == len(SAME)


def test_hidden_tests_of_a_threshold_hold_the_number_itself_and_the_next_one() -> None:
    data = SimpleFunctions(arguments=["n"])
    found = [s for s in (*data.split("train"), *data.split("heldout")) if "greater than" in s.prompt]
    assert len(found) > 15
    for sample in found:
        k = int(sample.prompt.split("than ")[1].split(",")[0])
        tests = {given[0]: result for given, result in sample.meta["tests"]}
        assert (tests[k], tests[k + 1]) == (False, True)


@pytest.mark.parametrize("largest", [5, 9, 20])
def test_no_rule_with_another_number_passes_the_hidden_tests(largest: int) -> None:
    data = SimpleFunctions(largest=largest, train_size=80)
    for sample in data.split("train"):
        rule, numbers = found_in(sample, largest)
        for hole in numbers:
            for other in range(1, 2 * largest + 2):
                if other == numbers[hole]:
                    continue
                wrong = rule.expression.format(**(numbers | {hole: other}))
                assert not all(value(wrong, rule, given) == result for given, result in sample.meta["tests"]), sample


@pytest.mark.parametrize("wrong", ["a", "b", "min(a, b)"])
def test_the_larger_of_two_is_told_from_each_of_them(wrong: str) -> None:
    for sample in SimpleFunctions(arguments=["ab"], largest=100).split("train"):
        if "max(a, b)" in sample.meta["reference"]:
            source = sample.meta["reference"].split("return ")[1].replace("max(a, b)", wrong)
            rule = next(rule for rule in RULES if "max(a, b)" in rule.expression)
            assert not all(value(source, rule, given) == result for given, result in sample.meta["tests"])


def found_in(sample: Sample, largest: int) -> tuple[Rule, dict[str, int]]:
    for rule in RULES:
        for k in range(2, largest + 1):
            for m in range(2, largest + 1) if "{m}" in rule.text else [2]:
                if sample.prompt.endswith(f" that returns {rule.text.format(k=k, m=m)}."):
                    return rule, {hole: n for hole, n in (("k", k), ("m", m)) if f"{{{hole}}}" in rule.text}
    raise AssertionError(sample.prompt)


def value(expression: str, rule: Rule, given: list[object]) -> object:
    return eval(expression, {}, dict(zip(rule.arguments, given, strict=True)))


def test_the_largest_numbers_take_no_longer() -> None:
    data = SimpleFunctions(largest=1000, train_size=200)
    assert len(data.split("train")) == 200
