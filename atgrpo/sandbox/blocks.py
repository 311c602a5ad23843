"""Finding the program in a response."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}+|~{3,}+)[ \t]*+(?P<info>[^`]*+)$")
_PYTHON = {"python", "py", "python3"}
_THINK_END = "</think>"


@dataclass(slots=True)
class _Block:
    marks: str
    language: str
    start: int
    end: int
    """Its lines in the text."""
    holds_others: bool = False


def python_block(text: str) -> str | None:
    """The program in a response, or None.

    What stands before the last ``</think>`` does not count, nor does an open think block. Of the rest it is the last
    block fenced as Python; with none such, the last block without a language; with no fence at all, the whole text if
    it compiles. A fence with a language opens a block, also within another one (a docstring, a text around it), and a
    bare one at least as long closes it. A block that nothing closes goes to the end: the response was cut.
    """
    answer = text.rpartition(_THINK_END)[2]
    if _THINK_END not in text and answer.lstrip().startswith("<think>"):
        return None
    lines = answer.splitlines()
    blocks = _blocks(lines)
    for languages in (_PYTHON, {""}):
        for block in reversed(blocks):
            if block.language in languages:
                program = "".join(f"{line}\n" for line in lines[block.start : block.end])
                if program.strip():
                    return program
    if blocks or not answer.strip() or not _compiles(answer):
        return None
    return answer.strip("\n") + "\n"


def _blocks(lines: list[str]) -> list[_Block]:
    """In the order in which they close."""
    closed: list[_Block] = []
    opened: list[_Block] = []
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        words = match["info"].lower().split() if match else []
        closes = bool(match and opened and not words and match["marks"].startswith(opened[-1].marks))
        opens = bool(match and (words or not opened))
        if closes:
            closed.append(opened.pop())
            closed[-1].end = number
            if opened:
                opened[-1].holds_others = True
        if match and opens:
            opened.append(_Block(match["marks"], words[0] if words else "", number + 1, len(lines)))
    # An open one around closed ones lacks its end by mistake, not because the response was cut.
    return closed + [block for block in opened[-1:] if not block.holds_others]


def _compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return bool(tree.body)
