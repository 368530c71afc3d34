#!/bin/sh
# Two workers on one machine, to try out a cluster:
#   sh examples/clusters/two_workers.sh --problem=spellout_ende \
#     --hparams=transformer_quickstart
workers=localhost:2222,localhost:2223
t2t-lite-trainer --workers=$workers --worker=1 "$@" 2>worker1.log &
exec t2t-lite-trainer --workers=$workers --worker=0 "$@"
