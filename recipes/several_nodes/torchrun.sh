#!/usr/bin/env bash
# Run on every node, with the same first node:
#   NODES=2 NODE=0 FIRST=node0.cluster PROCESSES=8 recipes/several_nodes/torchrun.sh --config recipes/math_qwen3.yaml
# Run folders (run.root) and the recipe must lie on a file system that all nodes share.
set -euo pipefail
: "${NODES:=1}" "${NODE:=0}" "${FIRST:=localhost}" "${PORT:=29500}" "${PROCESSES:=$(nvidia-smi --list-gpus | wc -l)}"
exec torchrun --nnodes "$NODES" --node-rank "$NODE" --nproc-per-node "$PROCESSES" \
    --master-addr "$FIRST" --master-port "$PORT" \
    -m atgrpo fit "$@" trainer=fsdp "trainer.num_nodes=$NODES" "trainer.devices=$PROCESSES"
