#!/usr/bin/env bash
# Trains under SLURM, on one node or several. If SLURM warns of the time limit or preempts the job, the run saves a
# checkpoint and the job is requeued; then the same command resumes the run.
#
#   sbatch scripts/slurm.sh experiment=wmt14_en_de run.name=wmt
#   sbatch --nodes=4 --gpus-per-node=8 scripts/slurm.sh experiment=wmt14_en_de run.name=wmt
#
# Submit it from the folder that holds data/ and outputs/, on a file system that all nodes share, with mt's environment
# activated. Without --gpus-per-node it trains on CPUs, with one process per node.

#SBATCH --job-name=mt
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=outputs/slurm-%j.log
#SBATCH --signal=B:USR1@180

set -uo pipefail
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=150 # seconds for saving, after which torchrun kills the processes

warned=
warn() {
    warned=yes
    # Signals the processes of the step, but not this shell. They save and exit with code 143
    scancel --signal=TERM "$SLURM_JOB_ID"
}
trap warn USR1 TERM # the warnings before the time limit and on preemption

head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 20000)) # so that two jobs on one node use different ports

export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}" # srun does not inherit it
srun --kill-on-bad-exit=1 torchrun \
    --nnodes="$SLURM_NNODES" \
    --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$head_node:$port" \
    --rdzv-id="$SLURM_JOB_ID" \
    -m mt train "$@" &
training=$!
wait "$training"
code=$?
if [[ -n $warned ]]; then
    while kill -0 "$training" 2>/dev/null; do # a warning interrupts `wait`, and may come twice
        wait "$training"
    done
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit "$code"
