from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from atgrpo.rollout.seeds import stable_seed, stream


def test_seeds_never_change_between_versions_or_a_resumed_run_would_draw_something_else() -> None:
    assert stable_seed(0) == 3605381253883003538
    assert stable_seed(1, "order", 2) == 1369543534885738955
    assert stream(0, "rows", "solver", 0).random() == 0.5405880668264066


def test_a_seed_does_not_depend_on_the_process() -> None:
    code = "from atgrpo.rollout.seeds import stable_seed; print(stable_seed(7, 'a', 3))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(seen) == stable_seed(7, "a", 3)


def test_parts_are_told_apart_by_type_and_place() -> None:
    parts = [(1,), ("1",), (11,), (1, 1), (1, "1"), ("1", 1), ("a", "b"), ("ab",), ("b", "a"), ()]
    assert len({stable_seed(*p) for p in parts}) == len(parts)


@given(st.lists(st.integers() | st.sampled_from(["solver", "", "é"]), max_size=4))
def test_seeds_leave_room_for_the_number_of_a_completion(parts: list[int | str]) -> None:
    assert 0 <= stable_seed(*parts) < 2**62
