"""Puzzle teams, played by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from atgrpo.envs.plan_path import PlanPathTeam
from atgrpo.envs.puzzle import PuzzleTeam
from atgrpo.envs.sokoban import SokobanTeam
from atgrpo.envs.sudoku import SudokuTeam
from atgrpo.sandbox.limits import Limits
from atgrpo.sandbox.runner import Run, SandboxError
from atgrpo.types import Sample, StepResult

MAZE = "S.#\n.#.\n..G"
"""Four moves, DDRR."""
LEVEL = "#####\n#@--#\n#-$-#\n#--.#\n#####"
"""Five moves, for example RDLDR."""
SUDOKU = ".234\n3.12\n21.3\n432."
"""1, 4, 4 and 1 are missing."""
CASES = ((PlanPathTeam, MAZE, "UDLR"), (SokobanTeam, LEVEL, "UDLR"), (SudokuTeam, SUDOKU, "1234"))


def team(kind: type[PuzzleTeam], prompt: str, **settings: object) -> PuzzleTeam:
    texts = {f"{role}_prompt": "" for role in PuzzleTeam.roles}
    env = kind(**{**texts, **settings})  # type: ignore[arg-type]
    env.reset(Sample("s", prompt, ""))
    return env


def act(env: PuzzleTeam, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def seen(env: PuzzleTeam, agent: str) -> str:
    """Everything an agent reads."""
    return "\n".join(message["content"] for message in env.observe(agent).messages)


@dataclass(frozen=True)
class StandIn:
    """Runs nothing: every program has the same end."""

    end: Run | SandboxError
    limits: Limits = field(default_factory=Limits)

    def run(self, source: str, stdin: str = "") -> Run:
        if isinstance(self.end, SandboxError):
            raise self.end
        return self.end


def printed(stdout: str) -> StandIn:
    return StandIn(Run(stdout, "", 0, None, 0.1))
