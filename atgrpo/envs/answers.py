r"""Whether an answer equals the gold answer: exact for plain numbers, math-verify behind a guard for the rest.

The guard admits short texts of a bounded shape only. math-verify's own time limits rest on signals, which work in the
main thread alone, so they are off and nothing that could run long (``9**9**9``, ``10^10^10``) may reach it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

MAX_LENGTH = 120
MAX_DIGITS = 30
MAX_DEPTH = 4
MAX_ELEMENTS = 10


class JudgeError(RuntimeError):
    """The judge itself failed. Neither right nor wrong: the reward is missing."""


def last_boxed(text: str) -> str | None:
    r"""What stands in the last complete ``\boxed{...}``; braces may nest, the whole text is searched."""
    opened: list[int | None] = []
    last: tuple[int, int] | None = None
    for token in re.finditer(r"\\boxed\s*\{|\\.|[{}]", text, re.DOTALL):
        if token[0] == "}":
            start = opened.pop() if opened else None
            if start is not None and (last is None or start > last[0]):
                last = (start, token.start())
        elif token[0].endswith("{") and token[0] != r"\{":
            opened.append(token.end() if token[0].startswith(r"\boxed") else None)
    return text[last[0] : last[1]].strip() if last else None


def gsm8k_answer(text: str) -> str | None:
    """The number after the last ``####``, wherever it stands."""
    found = re.findall(r"####\s*+(?:\$\s*+)?(-?\$?[\d.,]*\d(?:/\d+)?%?)", text)
    return found[-1] if found else None


def final_answer(text: str) -> str | None:
    """The last box, else the number after ``####``, else None."""
    boxed = last_boxed(text)
    return gsm8k_answer(text) if boxed is None else boxed


def equal(answer: str, gold: str) -> bool:
    r"""Whether ``answer`` (the content of a box) says the same as ``gold``. False whenever ``gold`` is unscorable.

    Lists (``2, 3`` or ``2 and 3``) must agree element by element in any order; a subset is wrong. Units are ignored
    where only one side has one; a percentage equals its number and its hundredth. Two numbers, one of them a decimal,
    agree when they round to the same 6 places.

    Raises:
        JudgeError: math-verify failed.
    """
    left, right = _elements(answer), _elements(gold)
    if not left or len(left) != len(right):
        return False
    for element in right:
        match = next((i for i, other in enumerate(left) if _element_equal(other, element)), None)
        if match is None:
            return False
        del left[match]
    return True


def is_scorable(gold: str) -> bool:
    r"""Whether ``equal`` can judge against ``gold``; words, choices (``A``), pairs and intervals are refused.

    Raises:
        JudgeError: math-verify failed.
    """
    elements = _elements(gold)
    return bool(elements) and all(_number(e) is not None or _symbolic(e) is not None for e in elements)


# ---- text to elements --------------------------------------------------------------------------------------------

_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\[dt]frac", r"\\frac"),
        (r"\\(?:left|right|displaystyle)(?![a-z])|\\[!,;:]|\{,\}(?=\d{3})|\^\{?\\circ\}?|°", ""),
        (r"\\ |~", " "),
        (r"\s*(?:\\%|%|\b[Pp]er\s?cent\b)", "%"),
        (r"\\?\$|^\s*\\[(\[]|\\[)\]]\s*$", ""),
        ("[−–]", "-"),
    )
]
_SEPARATOR = re.compile(r"\s*(?:,?\s+(?:and|or)\s+|;|,\s+|,(?!\d{3}(?!\d)))\s*")
_ASSIGNMENT = re.compile(r"^[A-Za-z]\s*=\s*(?=[^=]+$)")
_SCALES = r"(?!(?:and|or|pi|dozen|hundred|thousand|million|billion|trillion)s?\b)"
_UNIT = re.compile(
    rf"(?<=[\d}}.)])\s*({_SCALES}[A-Za-z]{{2,}}|(?<=\s){_SCALES}[mgshlLVW])"
    rf"((?:[\s/]{_SCALES}[A-Za-z]+)*)(?:\^?\{{?[23]\}}?|[²³])?$"
)


def _elements(text: str) -> list[str]:
    """The answer's parts, cleaned of delimiters; empty where the text is too long or has too many."""
    text = text.strip()
    if len(text) > MAX_LENGTH:
        return []
    if text.startswith(r"\boxed"):
        text = last_boxed(text) or ""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(".").strip()
    if text.startswith(r"\{") and text.endswith(r"\}"):
        text = text[2:-2]
    parts = [_ASSIGNMENT.sub("", part.strip()) for part in _SEPARATOR.split(text)]
    return parts if len(parts) <= MAX_ELEMENTS and all(parts) else []


def _without_unit(text: str) -> tuple[str, str]:
    if text.endswith("%"):
        return text[:-1].rstrip(), "%"
    if found := _UNIT.search(text):
        return text[: found.start()].rstrip(), re.sub(r"[\s\^{}]|s$", "", found[0].lower())
    return text, ""


# ---- plain numbers -----------------------------------------------------------------------------------------------

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)\s*(?:"
    rf"(?P<whole>{_INTEGER}(?=\s|\\))?\s*(?:\\frac\s*(?:\{{(?P<a>\d+)\}}\s*\{{(?P<b>\d+)\}}|(?P<a1>\d)\s*(?P<b1>\d))"
    rf"|(?P<a2>{_INTEGER})\s*/\s*(?P<b2>{_INTEGER}))"
    rf"|(?P<decimal>{_INTEGER}?\.\d+|{_INTEGER}\.?))"
)


def _number(element: str) -> tuple[Fraction, bool] | None:
    """The element as a plain number without its unit, and whether it was written as a decimal."""
    text = _without_unit(element)[0]
    if sum(c.isdigit() for c in text) > MAX_DIGITS or not text.isascii():
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign = -1 if found["sign"] == "-" else 1
    if decimal := found["decimal"]:
        return sign * Fraction(decimal.replace(",", "")), "." in decimal
    numerator = found["a"] or found["a1"] or found["a2"].replace(",", "")
    denominator = int(found["b"] or found["b1"] or found["b2"].replace(",", ""))
    if denominator == 0:
        return None
    whole = int((found["whole"] or "0").replace(",", ""))
    return sign * (whole + Fraction(int(numerator), denominator)), False


def _element_equal(answer: str, gold: str) -> bool:
    (_, answer_unit), (_, gold_unit) = _without_unit(answer), _without_unit(gold)
    if answer_unit and gold_unit and answer_unit != gold_unit:
        return False
    a, b = _number(answer), _number(gold)
    if a is None or b is None:
        return _symbolic_equal(answer, gold)
    scales = (1, 100) if "%" in (answer_unit, gold_unit) and answer_unit != gold_unit else (1,)
    pairs = [(a[0] / s, b[0]) if answer_unit == "%" else (a[0], b[0] / s) for s in scales]
    return any(x == y or ((a[1] or b[1]) and round(x, 6) == round(y, 6)) for x, y in pairs)


# ---- everything else, by math-verify -----------------------------------------------------------------------------

_COMMANDS = {"frac", "sqrt", "pi", "cdot", "times", "div", "ln", "log", "sin", "cos", "tan"}
_EXPONENT = re.compile(
    r"(?:\^|\*\*)\s*(\{-?\d{1,2}\}|\d|[a-z]\b|\{-?[a-z]\}|\{\\frac\{?\d\}?\{?\d\}?\})(?!\s*(?:\^|\*\*))"
)


def _admissible(text: str) -> bool:
    """Whether the text is of a shape whose parsing and simplification stay short."""
    bare = re.sub(r"\\([a-z]+)", lambda m: " " if m[1] in _COMMANDS else "!", text)
    if not re.fullmatch(r"[A-Za-z0-9+\-*/^_(){}\s.]+", bare) or re.search(r"[A-Za-z]{3,}", bare):
        return False
    powers = len(re.findall(r"\^|\*\*", text))
    if powers > 4 or powers != len(_EXPONENT.findall(text)):
        return False
    # A power of a sum is expanded by the judge; beyond cubes of a few terms that takes seconds.
    if re.search(r"[)}]\s*(?:\^|\*\*)\s*\{?-?(?:[4-9]|\d\d)", text) or sum(c.isdigit() for c in text) > MAX_DIGITS:
        return False
    return max(_depths(text), default=0) <= MAX_DEPTH and _balanced(text)


def _depths(text: str) -> Iterator[int]:
    depth = 0
    for character in text:
        depth += (character in "({") - (character in ")}")
        yield depth


def _balanced(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in ("()", "{}")) and not any(
        depth < 0 for depth in _depths(text)
    )


def _symbolic(element: str) -> Any | None:
    """The element as math-verify reads it, or None where it is not one expression."""
    text = _without_unit(element)[0]
    if not _admissible(text):
        return None
    import math_verify.grader
    import math_verify.parser
    import sympy

    # It would warn once that nothing limits its time; the guard above does.
    math_verify.parser.TIMEOUT_WARNING_SHOWN = math_verify.grader.TIMEOUT_WARNING_SHOWN = True
    try:
        parsed = math_verify.parser.parse(f"${text}$", parsing_timeout=None, raise_on_error=True)
        expression = parsed[0] if parsed else None
        if not isinstance(expression, sympy.Expr) or isinstance(expression, sympy.Symbol):
            return None
        # A division by zero is the model's fault; the judge would crash on it.
        return None if expression.doit().has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo) else expression
    except Exception as error:
        raise JudgeError(f"math-verify failed to read {text!r}: {error!r}") from error


def _symbolic_equal(answer: str, gold: str) -> bool:
    left, right = _symbolic(answer), _symbolic(gold)
    if left is None or right is None:
        return False
    from math_verify.grader import verify

    try:
        if _differ_at_a_point(left, right):
            return False
        return bool(verify(right, left, timeout_seconds=None, raise_on_error=True))
    except Exception as error:
        raise JudgeError(f"math-verify failed on {answer!r} against {gold!r}: {error!r}") from error


def _differ_at_a_point(left: Any, right: Any) -> bool:
    """Whether two expressions surely differ. Spares the judge the wrong ones, which it can simplify for minutes."""
    if left.free_symbols != right.free_symbols:
        return True
    point = {symbol: 0.6180339 + 0.7548776 * i for i, symbol in enumerate(sorted(left.free_symbols, key=str))}
    a, b = left.evalf(20, subs=point), right.evalf(20, subs=point)
    if not (a.is_number and b.is_number and a.is_finite and b.is_finite):
        return False
    return bool(abs(complex(a) - complex(b)) > 1e-6 * max(1.0, abs(complex(b))))
