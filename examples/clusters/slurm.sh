#!/bin/bash
# One run on two nodes, requeued until it is done:
#   sbatch examples/clusters/slurm.sh --problem=wmt_ende --hparams=transformer_big
# --data_dir and --output_dir must be on a file system that all nodes share.
#SBATCH --job-name=t2t-lite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# All workers save two minutes before the time limit and exit with 75.
#SBATCH --signal=TERM@120

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK" # srun does not inherit it

# The trainers read the addresses of all workers from SLURM's variables. They
# stop if one of them is lost.
srun --kill-on-bad-exit=0 t2t-lite-trainer "$@"
code=$?

# 75: saved, but not done. Other codes are errors.
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
