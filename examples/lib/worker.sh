#!/usr/bin/env bash
# Runs a command of fairseq as one of the processes that torchrun starts.
#
#   worker.sh fairseq-train ARGUMENT...
set -euo pipefail

exec "$@" --distributed-rank "$RANK" --device-id "$LOCAL_RANK"
