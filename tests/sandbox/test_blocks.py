"""Which part of a response is the program."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atgrpo.sandbox.blocks import python_block

DOCSTRING = 'def f():\n"""\n```python\nf()\n```\n"""\n'


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("Here:\n```python\nx = 1\n```\nIt prints\n```text\n1\n```\nDone.", "x = 1\n"),
        ("```python\nx = 1\n```\nIt prints\n```\n1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\nBetter:\n```py\nx = 2\n```", "x = 2\n"),
        ("<think>\n```python\nx = 0\n```\n</think>\n```python\nx = 1\n```", "x = 1\n"),
        ("Let me see ```python\nx = 0\n``` </think>\n```Python3\nx = 1\n```", "x = 1\n"),
        ("<think>\n```python\nx = 0\n```", None),
        ("<think>\n```python\nx = 0\n```\n</think>\nI do not know.", None),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```bash\nls\n```", None),
        ("```python\n```", None),
        ("```python\nx = 1\n", "x = 1\n"),
        ("~~~python\nx = '''\n```\n'''\n~~~", "x = '''\n```\n'''\n"),
        ("````python\nx = '''\n```\n'''\n````", "x = '''\n```\n'''\n"),
        (f"```python\n{DOCSTRING}```", DOCSTRING),
        ("````markdown\n```python\nx = 1\n```\n````", "x = 1\n"),
        ("```markdown\n```python\nx = 1\n```\n```", "x = 1\n"),
        ("```python\nx = 0\nOh no:\n```python\nx = 1\n```", "x = 1\n"),
        ("  ```python\nx = 1\n  ```", "x = 1\n"),
        ("```python\r\nx = 1\r\n```\r\n", "x = 1\n"),
        ("x = 1\nprint(x)", "x = 1\nprint(x)\n"),
        ("\nx = 1\n", "x = 1\n"),
        ("The answer is 3.", None),
        ("# nothing but a remark", None),
        ("", None),
        ("x = \0", None),
        ("(" * 5000, None),
    ],
)
def test_python_block(text: str, program: str | None) -> None:
    assert python_block(text) == program


@pytest.mark.parametrize(
    "text",
    [
        "```python\n" * 20_000,
        "```python\n" * 14_000 + "```\n" * 14_000,
        "```\n" * 50_000,
        "```" + " " * 200_000 + "`",
        "~" * 200_000 + "`",
        "`" * 200_000 + "x`",
        ("`" * 500 + "a\n") * 400,
    ],
)
def test_a_long_response_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    start = time.process_time()
    python_block(text)
    assert time.process_time() - start < 1


@given(st.text(alphabet="`~ \npythonx=1<>/think"))
def test_any_response_has_a_program_or_none(text: str) -> None:
    assert python_block(text) is None or python_block(text) != ""


@given(st.text(alphabet=st.characters(exclude_characters="`~\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1))
def test_a_fenced_program_comes_back_as_it_is(program: str) -> None:
    if program.strip() and "</think>" not in program:
        assert python_block(f"```python\n{program}\n```\n```text\n1\n```") == f"{program}\n"
