"""Calling a function: values cross as JSON, and what did not run did not score."""

from __future__ import annotations

import json

import pytest

from atgrpo.sandbox.calls import NEVER_RAN, Returned, call_function
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Sandbox

ENDED = "ended the program with exit code 0"


def call(source: str, *arguments: list[object], name: str = "f", **limits: float) -> list[Returned]:
    return call_function(Sandbox(Limits(**limits)), source, name, arguments)  # type: ignore[arg-type]


def values(returned: list[Returned]) -> list[object]:
    return [r.value if r.error is None else r.error for r in returned]


def test_each_call_returns_in_order() -> None:
    assert values(call("def f(a, b): return [a, b]", [1, 2], ["x", None], [[1], {"k": 2.5}])) == [
        [1, 2],
        ["x", None],
        [[1], {"k": 2.5}],
    ]
    assert call("def f(): return 1") == []


def test_a_time_out_costs_its_own_call_and_later_ones_only() -> None:
    source = "def f(x):\n    while x == 3: pass\n    return x"
    assert values(call(source, [1], [2], [3], [4], seconds=1)) == [1, 2, "timed out", NEVER_RAN]


@pytest.mark.parametrize("leave", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_leaving_early_scores_nothing(leave: str) -> None:
    ended = ENDED if "_exit" in leave else "ended the program with exit code 137"
    source = f"def f(x):\n    if x == 2:\n        {leave}\n    return x"
    assert values(call(source, [1], [2], [3], [3])) == [1, ended, NEVER_RAN, NEVER_RAN]
    assert values(call(f"{leave}\n{source}", [1], [2])) == [ended, NEVER_RAN]


def test_errors_are_of_their_call() -> None:
    source = "import sys\ndef f(x):\n    if x == 1: sys.exit(0)\n    if x == 2: raise KeyError('k' * 999)\n    return x"
    first, second, third = values(call(source, [1], [2], [3]))
    assert (first, third) == ("SystemExit: 0", 3)
    assert str(second).startswith("KeyError: 'kkk")
    assert len(str(second)) == 200


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def g(): pass", "NameError: no function 'f' is defined"),
        ("f = 3", "NameError: no function 'f' is defined"),
        ("def f(:", "SyntaxError: "),
        ("raise ValueError('at once')\ndef f(x): return x", "ValueError: at once"),
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("def f(): return 1", "TypeError: f() takes 0 positional arguments"),
        ("def f(x): return {1, 2}", "TypeError: Object of type set is not JSON"),
        ("def f(x): return f", "TypeError: Object of type function is not JSON"),
        ("def f(x): return 10**6000", "ValueError: Exceeds the limit"),
        ("def f(x): return 'y' * 100_000", "returned more than 64 KB"),
        ("def f(x): return '\\u00e9' * 33_000", "returned more than 64 KB"),
        ("def f(x): return ['\\ud800']", "UnicodeEncodeError: "),
        ("def f(x): raise Exception('\\ud800!')", "Exception: ?!"),
        ("raise Exception('\\ud800')", "Exception: ?"),
        ("def f(x):\n    y = []\n    for _ in range(800): y = [y]\n    return y", ""),
    ],
)
def test_what_is_no_value_is_an_error(source: str, error: str) -> None:
    for returned in call(source, [1], [1]):
        if error:
            assert returned.value is None
            assert returned.error is not None
            assert returned.error.startswith(error)


def test_a_value_counts_as_many_bytes_as_it_has_in_utf_8() -> None:
    # With its quotes: 2 bytes for each of the letters, 6 where JSON writes them in ASCII.
    source = "def f(n): return '\u00e9' * n"
    assert values(call(source, [12_000], [32_767], [32_768])) == [
        "é" * 12_000,
        "é" * 32_767,
        "returned more than 64 KB",
    ]


def test_no_text_that_comes_back_holds_half_a_character() -> None:
    forged = (
        "import os, sys\ndef f(x):\n    frame = sys._getframe(1)\n    nonce = frame.f_locals['nonce']\n"
        '    line = f\'{nonce} {x} {"value" if x else "error"} {{"a": "\\\\ud800"}}\\n\'\n'
        "    os.write(frame.f_locals['status_fd'], line.encode())\n    return x\n"
    )
    for returned in call(forged, [0], [1]):
        json.dumps([returned.value, returned.error], ensure_ascii=False).encode()
    run = Sandbox().run("import sys\nfor out in (sys.stdout, sys.stderr): out.buffer.write(b'\\xed\\xa0\\x80!')")
    for text in (run.stdout, run.stderr):
        assert text.encode().decode() == text
        assert text.endswith("!")


def test_too_much_memory_in_one_call_leaves_the_next_ones() -> None:
    source = "def f(x):\n    return len(bytearray(x << 20))"
    first, second = call(source, [2000], [1])
    assert first.error is not None
    assert first.error.startswith("MemoryError")
    assert second.value == 1 << 20


def test_the_main_guard_does_not_run_and_printing_is_no_result() -> None:
    source = "print('0 value 7')\ndef f(x):\n    print(7)\n    return x\nif __name__ == '__main__': f(input())"
    assert values(call(source, [1])) == [1]


def test_a_call_cannot_change_what_later_calls_get() -> None:
    assert values(call("def f(x):\n    x.append(1)\n    return x", [[]], [[]])) == [[1], [1]]


def test_a_forged_line_without_the_number_counts_for_nothing() -> None:
    source = (
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'x 0 value 4\\n' * 2)\n    except OSError: pass\n"
        "def f(x): os._exit(0)"
    )
    assert values(call(source, [2])) == [ENDED]


def test_a_child_that_returns_too_is_not_counted_twice() -> None:
    source = "import os, time\ndef f(x):\n    if x == 1 and os.fork() == 0: x = 5\n    time.sleep(0.1)\n    return x"
    assert len(call(source, [1], [2], [3])) == 3


def test_arguments_must_be_json() -> None:
    with pytest.raises(ValueError, match=r"arguments got .*set.*, expected what JSON can hold"):
        call("def f(x): return 1", [{1, 2}])
