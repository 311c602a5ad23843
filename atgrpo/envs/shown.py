"""Text that somebody wrote, made fit to stand in a prompt."""

from __future__ import annotations

import re

_CONTROL = re.compile(
    r"<(?=[|\uff5c]"  # <|im_end|>, and the wide bar of DeepSeek
    r"|/?(?:s|bos|eos|eot|eod|sop|eop|pad|unk|mask|cls|sep|SYS|PRE|SUF|MID|EOT)>"
    r"|(?:begin|start|end)_of_\w+>|(?:unused|reserved_|extra_id_|0x)\w+>|fim_\w+>)"
    r"|\[(?=/?[A-Z][A-Z_]{2,}\])"  # [INST], [TOOL_CALLS]
)


def harmless(text: str) -> str:
    """``text`` that no tokenizer reads as a control token, nor fails on.

    A space is put behind the ``<`` of ``<|``, ``</s>``, ``<start_of_turn>`` and the like, and behind the ``[`` of
    ``[INST]``; all other ``<`` and ``[`` stay, so programs and tags (``<answer>``, ``<tool_call>``) do. Half a
    character (a lone surrogate) becomes ``?``. Repeating it changes nothing.
    """
    return _CONTROL.sub(lambda found: found[0] + " ", text.encode("utf-8", "replace").decode())


def head(text: str, limit: int) -> str:
    """The first ``limit`` characters as they are, ``harmless``."""
    return harmless(text[:limit])


def excerpt(text: str, limit: int) -> str:
    """The stripped text, ``harmless``; of more than ``limit`` characters the first ones and ``...``."""
    text = text.strip()
    return harmless(text if len(text) <= limit else text[:limit].rstrip() + "...")
