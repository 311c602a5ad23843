"""Whether the roles that share a policy all shape it, or one of them has captured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L

from atgrpo.rollout.collate import Batching, by_share, trainable
from atgrpo.training.callbacks.metrics import log
from atgrpo.training.say import say
from atgrpo.types import Turn


class RoleHealth(L.Callback):
    """Logs ``policy/<policy>/<agent>/gradient_share`` and says in one line when a role captures its policy.

    It is said once, until the role's share has fallen again or has become another's. An iteration in which nothing is
    learned neither counts nor ends a row.

    Args:
        agents: Role -> policy.
        threshold: A role with a larger share of the gradient than this has captured the policy...
        patience: ...if it is so for this many iterations in a row.
    """

    def __init__(self, *, agents: Mapping[str, str], threshold: float = 0.9, patience: int = 10) -> None:
        if not 0 < threshold < 1 or patience < 1:
            raise ValueError(
                f"role_health got threshold={threshold}, patience={patience}, expected more than 0 and less than 1, "
                "1 or more"
            )
        self.agents = agents
        self.threshold = threshold
        self.patience = patience
        self.rows: dict[str, tuple[str, int]] = {}
        """Policy -> (the role above the threshold, for how many iterations by now)."""

    def state_dict(self) -> dict[str, Any]:
        """The rows."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self.rows = dict(state_dict["rows"])

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs and warns."""
        data = trainer.datamodule
        turns = [turn for rollout in data.latest.rollouts for turn in rollout.turns]
        agents = {agent: policy for agent, policy in self.agents.items() if policy in pl_module.trainable}
        shares = gradient_shares(turns, data.batching, agents)
        values = {f"policy/{p}/{a}/gradient_share": share for p, own in shares.items() for a, share in own.items()}
        log(trainer, pl_module, values, step=data.latest.number)
        for policy, own in shares.items():
            self._watch(policy, own)

    def _watch(self, policy: str, shares: Mapping[str, float]) -> None:
        agent, share = max(shares.items(), key=lambda item: item[1])
        before, row = self.rows.pop(policy, (agent, 0))
        if share <= self.threshold:
            return
        row = row + 1 if agent == before else 1
        self.rows[policy] = agent, row
        if row == self.patience:
            say(
                f"warning: {agent} has had over {self.threshold:.0%} of the gradient of policy {policy} for {row} "
                f"iterations in a row (now {share:.1%}); if the other roles still have to learn, give it a policy of "
                "its own in agents, or weigh short and long responses alike with batching.aggregation=sequence_mean"
            )


def gradient_shares(
    turns: Sequence[Turn], batching: Batching, agents: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Policy that several of ``agents`` share -> agent -> its share of the weight in the policy gradient.

    ``share(a) = sum over the tokens of a of w |A| / the same sum over all tokens of the policy``, with the advantage A
    of a token's response and the weight w that ``batching.aggregation`` gives it: under ``token_mean`` |A| x tokens,
    under ``sequence_mean`` |A| a response. An agent without a turn has 0; a policy whose advantages are all 0 is left
    out, since nothing pulls at it.

    It is read off the iteration's turns and needs no backward pass: the part that each role has in the sum
    of ``w |A| |grad log pi|`` if a token's gradient were as long for one role as for another. It does not see that the
    tokens of a role which is sure of itself have short gradients, that gradients cancel, what clipping and the mismatch
    correction take away, nor the KL and entropy terms; it takes the iteration as one optimiser step.
    """
    shares = {}
    for policy in dict.fromkeys(agents.values()):
        roles = [agent for agent, own in agents.items() if own == policy]
        own = [turn for turn in trainable(turns, batching) if turn.policy == policy]
        pull = dict.fromkeys(roles, 0.0)
        for turn, weight in zip(own, _weights(own, batching), strict=True):
            pull[turn.key.agent] += weight * abs(turn.advantage or 0.0)
        if len(roles) > 1 and (total := sum(pull.values())):
            shares[policy] = {agent: value / total for agent, value in pull.items()}
    return shares


def _weights(turns: Sequence[Turn], batching: Batching) -> list[float]:
    """What all tokens of each turn weigh in the step's loss, up to its denominator."""
    if batching.aggregation == "trajectory_mean":
        [turns] = by_share([turns])
    lengths = [len(turn.completion.token_ids) for turn in turns]
    per_token, _ = batching.weigh(lengths)
    return [w * n * turn.count for w, n, turn in zip(per_token.tolist(), lengths, turns, strict=True)]
