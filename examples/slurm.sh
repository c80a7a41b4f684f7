#!/usr/bin/env bash
#SBATCH --job-name=fairseq-entmax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --requeue
# Trains one model of a recipe on all machines of a SLURM job: an example to adapt.
#
#   sbatch examples/slurm.sh RECIPE [options of train.sh] MAPPING [options of fairseq-train]
#   sbatch examples/slurm.sh wmt14_en_de --output /shared/wmt14 entmax --fp16
#
# The environment of the job must have fairseq-train and fairseq-entmax on PATH, and all machines
# must see the --output folder. A job that was stopped and is queued again goes on. PORT is a
# free port of the first machine (default: 29500).
set -euo pipefail

# SLURM runs a copy of this script, so its own place says nothing
recipe=${SLURM_SUBMIT_DIR:-$PWD}/examples/${1:?the name of a recipe, such as wmt14_en_de}
shift
read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# One task on each machine, which starts the processes for its GPUs. They end together: where one
# fails, the others would wait for it.
# shellcheck disable=SC2016 # the shell that srun starts fills these in
exec srun --kill-on-bad-exit=1 bash -c \
    '"$0" --nodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --master "$@"' \
    "$recipe/train.sh" "$first:${PORT:-29500}" "$@"
