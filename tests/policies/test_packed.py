from __future__ import annotations

import torch

from atgrpo.policies.packed import branch_mask


def test_mask_by_hand() -> None:
    seen = branch_mask(torch.tensor([[0, 0, 1, 2, 2, -1]]))[0].int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],  # padding sees itself: an empty row would be NaN
    ]
