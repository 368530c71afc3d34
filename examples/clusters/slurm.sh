#!/bin/bash
# One run on two nodes, put back into the queue until it is done:
#   sbatch examples/clusters/slurm.sh --problem=wmt_ende --hparams=transformer_big
# Your home, or wherever --output_dir is, must be seen by all nodes.
#SBATCH --job-name=t2t-lite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the time is up all workers save, and leave with 75.
#SBATCH --signal=TERM@120

port=2222
workers=$(scontrol show hostnames "$SLURM_JOB_NODELIST" |
  sed "s/\$/:$port/" | paste -sd, -)
export workers

# The trainers stop by themselves when one of them is lost, and say which.
srun --kill-on-bad-exit=0 bash -c \
  'exec t2t-lite-trainer --workers="$workers" --worker="$SLURM_PROCID" "$@"' \
  t2t-lite-trainer "$@"
code=$?

# 75: saved, and not done. Others are errors, which need somebody to look.
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
