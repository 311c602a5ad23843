"""LoRA adapters as an engine sees them: peft folders on models that several policies share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from atgrpo.engines.common import Parameters

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is known of a policy's adapter when the engine starts; later only its weights change."""

    folder: Path
    """The adapter it starts with; read at the start only."""
    config: str
    """Text of ``adapter_config.json``."""
    parameters: Parameters

    @classmethod
    def of_folder(cls, folder: Path) -> Adapter:
        """Reads a folder that peft or a policy wrote."""
        return cls(folder, (folder / CONFIG).read_text(), Parameters.of_adapter(folder))

    @property
    def rank(self) -> int:
        """Rank of its updates."""
        return int(json.loads(self.config)["r"])

    def weights(self) -> dict[str, Tensor]:
        """Those it starts with."""
        from safetensors.torch import load_file

        return load_file(self.folder / WEIGHTS)

    def received(self, policy: str, weights: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """All pushed weights on the host.

        Raises:
            EngineError: they are not exactly the adapter's.
        """
        with self.parameters.checked(policy, weights) as known:
            return {name: tensor.detach().cpu().contiguous() for name, tensor in known}

    def write(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Writes the adapter with other weights, as peft would."""
        from safetensors.torch import save_file

        (folder / CONFIG).write_text(self.config)
        save_file(dict(weights), folder / WEIGHTS, metadata={"format": "pt"})


def read_adapters(
    models: Mapping[str, str | Path], adapters: Mapping[str, str | Path] | None
) -> tuple[dict[str, Adapter], dict[str, str]]:
    """The adapters, and for each policy under whose name its model is loaded.

    Policies with adapters on the same folder share the model of the first of them; any other has its own.
    """
    read = {policy: Adapter.of_folder(Path(folder)) for policy, folder in (adapters or {}).items()}
    if strangers := sorted(set(read) - set(models)):
        raise ValueError(f"adapters: got {', '.join(strangers)}, expected policies out of {', '.join(models)}")
    first: dict[Path, str] = {}
    hosts = {
        policy: first.setdefault(Path(folder).resolve(), policy) if policy in read else policy
        for policy, folder in models.items()
    }
    return read, hosts
