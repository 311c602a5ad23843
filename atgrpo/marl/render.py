"""Draws an episode as a GIF; needs no display."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from atgrpo.marl.simulator import Simulator

SIZE = 360
MARGIN = 0.15
BACKGROUND = (255, 255, 255)
STEP_MS = 60


class Film:
    """Takes a picture of the first environment whenever it is called.

    Args:
        half_width: Of the part of the world that is shown, around its middle.
    """

    def __init__(self, half_width: float = 1.0) -> None:
        self.half_width = half_width + MARGIN
        self.frames: list[Any] = []

    def __call__(self, simulator: Simulator) -> None:
        """One more frame."""
        from PIL import Image, ImageDraw

        twice = 2 * SIZE  # drawn large and made small, which smooths edges
        image = Image.new("RGB", (twice, twice), BACKGROUND)
        pen = ImageDraw.Draw(image)
        positions, rotations = simulator.positions()[0].tolist(), simulator.rotations()[0].tolist()
        robots = {id(agent) for agent in simulator.agents}
        drawn = list(zip(simulator.entities, positions, rotations, strict=True))
        for entity, place, rotation in sorted(drawn, key=lambda item: item[0].collide):  # goals lie under the rest
            outline = (0, 0, 0) if id(entity) in robots else None
            self._draw(pen, entity, place, rotation, outline)
        self.frames.append(image.resize((SIZE, SIZE)).quantize(64))

    def _draw(self, pen: Any, entity: Any, place: list[float], rotation: float, outline: Any) -> None:
        scale = SIZE / self.half_width
        x, y = SIZE + place[0] * scale, SIZE - place[1] * scale
        colour = tuple(round(255 * c) for c in _colour(entity))
        shape = entity.shape
        if hasattr(shape, "radius"):
            radius = shape.radius * scale
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline=outline, width=2)
            return
        cos, sin = math.cos(rotation), math.sin(rotation)
        half = shape.length * scale / 2, shape.width * scale / 2
        corners = [(sx * half[0], sy * half[1]) for sx, sy in ((1, 1), (1, -1), (-1, -1), (-1, 1))]
        pen.polygon([(x + cx * cos - cy * sin, y - cx * sin - cy * cos) for cx, cy in corners], fill=colour)

    def save(self, to: Path) -> None:
        """Writes the film, which starts again and again."""
        first, *rest = self.frames
        to.parent.mkdir(parents=True, exist_ok=True)
        first.save(to, format="GIF", save_all=True, append_images=rest, duration=STEP_MS, loop=0)


def _colour(entity: Any) -> list[float]:
    """VMAS gives one colour, or one for each environment."""
    colour = entity.color
    values = colour.value if hasattr(colour, "value") else colour
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return list(listed[0] if isinstance(listed[0], list) else listed)[:3]
