r"""A decomposer writes queries to a local corpus, a searcher reads what they find and answers in ``\boxed{}``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atgrpo.envs.answers import last_boxed
from atgrpo.envs.contract import EnvError
from atgrpo.envs.corpus import Passage, load_corpus
from atgrpo.envs.guards import Guarded, expect_one
from atgrpo.envs.short_answers import clipped, exact_match, normalised
from atgrpo.envs.world import world_corpus
from atgrpo.types import Action, Message, Observation, Sample, StepResult

MAX_SAID = 160
"""Characters of a query or a note that are kept."""
MAX_TITLE = 80
NOTHING = "nothing"
"""What a search without a result shows, and what stands for a response that could not be read."""


@dataclass(frozen=True, slots=True)
class Move:
    """One response of one agent."""

    agent: str
    said: str | None
    """The query, the note or the answer; None where nothing could be read."""
    final: bool = False
    """It is the answer."""


class Search(Guarded[Sample]):
    r"""Multi-hop questions, one query and one reading a turn.

    The decomposer's whole response is the query; the searcher sees the passages it finds. Without a complete
    ``\boxed{}`` the searcher's response is a note, which the decomposer reads in the next turn; with one it is the
    final answer, which ends the episode. Both agents see the queries and notes of earlier turns.

    ``success`` and ``team_reward`` are 1 once the final answer is right: equal numbers, or the same words whatever
    their case, articles and punctuation. The decomposer's ``local_reward`` is the share of the gold supporting
    passages (titles in ``meta["supporting"]``) that its query is the first to find, so an episode's sum is at most 1;
    without such titles it is 0. The searcher's is 1 for a right answer, 0 for a wrong one and for a note. Both earn -1
    for a response that cannot be read: one without words, or a box that is never closed.

    Args:
        corpus: JSON lines with ``title`` and ``text``; a relative path starts from the current folder. None: the
            made-up world of ``atgrpo.envs.world``. Teams and forks share the one index of a file.
        passages: Passages that a query finds.
        passage_length: Characters of a passage that the searcher sees.
        decomposer_prompt: System text of the decomposer; empty for none.
        searcher_prompt: System text of the searcher; empty for none.
    """

    roles = ("decomposer", "searcher")

    def __init__(
        self,
        corpus: str | Path | None = None,
        passages: int = 3,
        passage_length: int = 400,
        decomposer_prompt: str = "Write one short search query for the next fact that the question needs.",
        searcher_prompt: str = (
            r"If the passages answer the question, write the answer in \boxed{}. If not, write the one fact in them "
            "that helps."
        ),
    ) -> None:
        for name, number in (("passages", passages), ("passage_length", passage_length)):
            if number < 1:
                raise ValueError(f"{name} got {number}, expected at least 1")
        self._corpus = world_corpus() if corpus is None else load_corpus(Path(corpus))
        self._k, self._passage_length = passages, passage_length
        self._prompts = {"decomposer": decomposer_prompt, "searcher": searcher_prompt}
        self._supporting: tuple[str, ...] = ()
        self._history: tuple[Move, ...] = ()
        self._read: tuple[Passage, ...] = ()
        self._found: frozenset[str] = frozenset()
        self._success = 0.0

    def reset(self, sample: Sample) -> None:
        """Starts an episode.

        Raises:
            ValueError: its answer has no words, or a supporting title is not in the corpus.
        """
        if not normalised(sample.answer):
            raise EnvError(f"sample {sample.id!r} got answer {sample.answer!r}, expected a word or a number")
        supporting = _titles(sample.meta.get("supporting", ()))
        if strangers := [title for title in supporting if title not in self._corpus.titles]:
            raise EnvError(f"sample {sample.id!r} got supporting {strangers[0]!r}, expected a title of the corpus")
        self._current, self._supporting = sample, supporting
        self._history, self._read, self._found, self._success = (), (), frozenset(), 0.0

    def observe(self, agent: str) -> Observation:
        """System text; the question, earlier queries and notes and, for the searcher, the query and what it found."""
        self._check(agent)
        lines = [self._current.prompt]
        for move in self._history:
            said = move.said or NOTHING
            lines.append(f"query: {said}" if move.agent == "decomposer" else f"note: {said}")
        if agent == "searcher":
            length = self._passage_length
            lines += [f"{clipped(p.title, MAX_TITLE)}: {clipped(p.text, length)}" for p in self._read] or [NOTHING]
        system: list[Message] = [{"role": "system", "content": self._prompts[agent]}] if self._prompts[agent] else []
        return Observation(agent, (*system, {"role": "user", "content": "\n".join(lines)}))

    def parse(self, agent: str, text: str) -> Action:
        r"""The decomposer's whole text, on one line; the searcher's last ``\boxed{}``, else its whole text."""
        self._check(agent)
        boxed = last_boxed(text) if agent == "searcher" else None
        said = clipped(text if boxed is None else boxed, MAX_SAID)
        broken = agent == "searcher" and boxed is None and r"\boxed" in text
        readable = bool(normalised(said)) and not broken
        return Action(Move(agent, said if readable else None, final=readable and boxed is not None), readable)

    def step(self, agent: str, action: Action) -> StepResult:
        """Searches, notes or answers; ``info["found"]`` is the share of the supporting passages found so far.

        Raises:
            ValueError: the episode is over, or the action is not this agent's.
        """
        move = self._made(agent, action, Move)
        before = self._share
        self._history = (*self._history, move)
        if agent == "decomposer":
            self._read = self._corpus.search(move.said, self._k) if move.said else ()
            self._found |= {p.title for p in self._read}
        elif move.final:
            self._success = float(exact_match(str(move.said), self._current.answer))
        earned = self._share - before if agent == "decomposer" else self._success
        return StepResult(self._success, -1.0 if move.said is None else earned, self.done, info={"found": self._share})

    @property
    def _share(self) -> float:
        found = sum(title in self._found for title in self._supporting)
        return found / len(self._supporting) if self._supporting else 0.0

    @property
    def done(self) -> bool:
        """The searcher has given the final answer."""
        return bool(self._history) and self._history[-1].final

    @property
    def success(self) -> float:
        """1 if the final answer is right, else 0."""
        return self._success

    def notes(self, agents: Collection[str]) -> Sequence[str]:
        """Nothing, of a team that can answer.

        Raises:
            ValueError: it cannot, so that no episode could succeed.
        """
        expect_one(agents, ("searcher",), "whose answer ends an episode")
        return ()

    def demonstrate(self, agent: str) -> str | None:
        """The next supporting title as a query or a note, the answer once all are found; None without such titles."""
        self._check(agent)
        if not self._supporting or self.done:
            return None
        missing = [title for title in self._supporting if title not in self._found]
        if agent == "decomposer":
            return missing[0] if missing else self._supporting[-1]
        if not missing:
            return rf"\boxed{{{self._current.answer}}}"
        return missing[0] if self._found.intersection(self._supporting) else NOTHING


def _titles(value: Any) -> tuple[str, ...]:
    """The different titles in order; a column of that name with another meaning holds none."""
    listed = isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(v, str) for v in value)
    return tuple(dict.fromkeys(value)) if listed else ()
