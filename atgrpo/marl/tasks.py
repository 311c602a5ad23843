"""Tasks of the VMAS simulator: what is set up, what earns a reward, what is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Measures = dict[str, Tensor]
"""What a task looks at in a state; the first dimension is that of the environments."""


@dataclass(frozen=True, slots=True)
class Earned:
    """Rewards of one step."""

    own: Float[Tensor, "B N"]
    group: Float[Tensor, " B"]
    """The team's; no mean or sum of the agents' own."""


class Task(Protocol):
    """A scenario of VMAS with rewards and metrics of its own."""

    scenario: ClassVar[str]
    final: ClassVar[tuple[str, ...]]
    """Measures that an episode is judged by at its end."""
    counted: ClassVar[tuple[str, ...]]
    """Measures that are added up over an episode."""
    agents: int
    time_limit: int

    def settings(self) -> dict[str, Any]:
        """What the scenario is built with."""

    def prepare(self, scenario: Any) -> None:
        """Changes what the scenario has no setting for."""

    def fits(self, measures: Measures) -> Bool[Tensor, " B"]:
        """Which states an episode may start from."""

    def sync(self, scenario: Any, reset: Bool[Tensor, " B"]) -> None:
        """Sets what the scenario remembers of the step before, where the state was set from outside."""

    def measure(self, scenario: Any) -> Measures:
        """Looks at the state as it is."""

    def earned(
        self, before: Measures, after: Measures, simulated: Float[Tensor, "B N"], done: Bool[Tensor, " B"]
    ) -> Earned:
        """Rewards of the step between two states; ``simulated`` are the scenario's own."""


MOST_AGENTS = 16
"""More find no room to start, and VMAS looks for it without end."""


def _check_team(agents: int, time_limit: int) -> None:
    if not 1 <= agents <= MOST_AGENTS:
        raise ValueError(f"task.agents: got {agents}, expected 1 to {MOST_AGENTS}")
    if time_limit < 1:
        raise ValueError(f"task.time_limit: got {time_limit}, expected 1 or more")


def _distance(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vector_norm(a - b, dim=-1)


@dataclass(frozen=True, kw_only=True)
class Navigation:
    """Every robot has a goal of its own and sees by lidar where others are; done when all stand on theirs.

    Own reward, the scenario's: way made towards the own goal, -1 in each collision, .01 when all are done. Group
    reward: way made by the robot that has farthest to go, -1 for each colliding pair, 1 when all are done; so a
    robot at its goal can still help or harm the team, and the mean of the own rewards is another number.

    Args:
        agents: Robots.
        time_limit: Steps after which an episode is cut off.
    """

    scenario = "navigation"
    final = ("coverage",)
    counted = ("collisions",)
    agents: int = 4
    time_limit: int = 100

    def __post_init__(self) -> None:
        _check_team(self.agents, self.time_limit)

    def settings(self) -> dict[str, Any]:
        return {"n_agents": self.agents, "shared_rew": False}

    def prepare(self, scenario: Any) -> None:
        """Nothing."""

    def fits(self, measures: Measures) -> Bool[Tensor, " B"]:
        return measures["coverage"] < 1

    def sync(self, scenario: Any, reset: Bool[Tensor, " B"]) -> None:
        for agent in scenario.world.agents:
            left = _distance(agent.state.pos, agent.goal.state.pos) * scenario.pos_shaping_factor
            agent.pos_shaping = torch.where(reset, left, agent.pos_shaping)

    def measure(self, scenario: Any) -> Measures:
        robots = scenario.world.agents
        left = torch.stack([_distance(robot.state.pos, robot.goal.state.pos) for robot in robots], -1)
        # The radius that ends an episode; the scenario's own ``on_goal`` uses half of it.
        covered = left < robots[0].shape.radius
        hits = torch.stack([robot.agent_collision_rew for robot in robots], -1) / scenario.agent_collision_penalty
        return {"farthest": left.amax(-1), "coverage": covered.float().mean(-1), "collisions": hits.sum(-1) / 2}

    def earned(
        self, before: Measures, after: Measures, simulated: Float[Tensor, "B N"], done: Bool[Tensor, " B"]
    ) -> Earned:
        progress = before["farthest"] - after["farthest"]
        return Earned(simulated, progress - after["collisions"] + done.float())


@dataclass(frozen=True, kw_only=True)
class BoxPushing:
    """A box on rough ground, too heavy for one robot to deliver in time; done when it touches the goal.

    Own reward: ``progress`` times the way of the box, gained by the robots that touch it and lost by all; ``approach``
    times the robot's own way to the point behind the box; ``delivery`` at the end for those who touch. Group reward:
    ``progress`` times the way of the box, and ``delivery``. To and fro earns nobody anything, whoever pushes which way.

    Args:
        agents: Robots.
        time_limit: Steps after which an episode is cut off.
        mass: Of the box; a robot is 1.
        friction: Of the box, which the scenario lacks: VMAS's own box moves under any push.
        start: Least and largest distance of the box from its goal.
        progress: Reward for a unit of the box's way.
        approach: Reward for a unit of a robot's way.
        delivery: Reward at the end.
    """

    scenario = "transport"
    final = ("box_distance",)
    counted = ("pushed_together",)
    agents: int = 2
    time_limit: int = 150
    mass: float = 2.0
    friction: float = 0.25
    start: tuple[float, float] = (0.62, 0.75)
    progress: float = 5.0
    approach: float = 2.0
    delivery: float = 2.0

    def __post_init__(self) -> None:
        _check_team(self.agents, self.time_limit)
        if not 0 < self.mass < math.inf:
            raise ValueError(f"task.mass: got {self.mass}, expected more than 0")
        for name in ("friction", "progress", "approach", "delivery"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"task.{name}: got {getattr(self, name)}, expected 0 or more")
        if not 0 <= self.start[0] < self.start[1]:
            raise ValueError(f"task.start: got {list(self.start)}, expected a smaller and a larger distance")

    REACH: ClassVar[float] = 0.16
    """Between the centres of a robot and a box that touch: half a diagonal, a radius and some play."""
    BEHIND: ClassVar[float] = 0.13
    """From the box's centre to where a robot should stand."""
    CLOSE: ClassVar[float] = 0.05
    """Nearer to that point is no better: two robots cannot both stand on it."""

    def settings(self) -> dict[str, Any]:
        return {"n_agents": self.agents, "package_mass": self.mass}

    def prepare(self, scenario: Any) -> None:
        scenario.packages[0].linear_friction = self.friction

    def fits(self, measures: Measures) -> Bool[Tensor, " B"]:
        return (measures["box_distance"] >= self.start[0]) & (measures["box_distance"] <= self.start[1])

    def sync(self, scenario: Any, reset: Bool[Tensor, " B"]) -> None:
        box = scenario.packages[0]
        left = _distance(box.state.pos, box.goal.state.pos) * scenario.shaping_factor
        box.global_shaping = torch.where(reset, left, box.global_shaping)
        box.on_goal = torch.where(reset, scenario.world.is_overlapping(box, box.goal), box.on_goal)

    def measure(self, scenario: Any) -> Measures:
        box = scenario.packages[0]
        robots = torch.stack([robot.state.pos for robot in scenario.world.agents], 1)
        left = box.goal.state.pos - box.state.pos
        distance = torch.linalg.vector_norm(left, dim=-1)
        behind = box.state.pos - self.BEHIND * left / distance.clamp(min=1e-6).unsqueeze(-1)
        touching = _distance(robots, box.state.pos.unsqueeze(1)) < self.REACH
        return {
            "box_distance": distance,
            "behind": _distance(robots, behind.unsqueeze(1)).clamp(min=self.CLOSE),
            "touching": touching,
            "pushed_together": (touching.sum(-1) > 1).float(),
        }

    def earned(
        self, before: Measures, after: Measures, simulated: Float[Tensor, "B N"], done: Bool[Tensor, " B"]
    ) -> Earned:
        moved = self.progress * (before["box_distance"] - after["box_distance"]) + self.delivery * done.float()
        touching = (before["touching"] | after["touching"]).float()
        # Were only those charged who touch, two could push it forth and one of them back, again and again.
        pushed = moved.clamp(min=0).unsqueeze(-1) * touching + moved.clamp(max=0).unsqueeze(-1)
        return Earned(pushed + self.approach * (before["behind"] - after["behind"]), moved)
