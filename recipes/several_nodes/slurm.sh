#!/usr/bin/env bash
#SBATCH --job-name=atgrpo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=SIGTERM@300
# Submit from the folder that holds the environment and the runs:
#   sbatch recipes/several_nodes/slurm.sh --config recipes/math_qwen3.yaml
# Five minutes before its time is over the job finishes its iteration and saves; submit it again with: --resume last
set -euo pipefail
exec srun --kill-on-bad-exit=1 python -m atgrpo fit "$@" \
    trainer=fsdp "trainer.num_nodes=$SLURM_JOB_NUM_NODES" "trainer.devices=$SLURM_NTASKS_PER_NODE"
