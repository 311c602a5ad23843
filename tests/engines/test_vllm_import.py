from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = """
import numba
from atgrpo.engines.vllm import VLLMEngine
from atgrpo.policies.sources import model_folder
VLLMEngine({"a": model_folder("tiny")}, kv_cache_gb=0.25, max_model_len=64).close()
print("started")
"""


def test_vllm_starts_beside_modules_that_it_cannot_look_into() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.stdout.endswith("started\n"), done.stderr
