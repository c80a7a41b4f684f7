#!/usr/bin/env bash
# Kills jobs of every kind at random times, two at a time, runs each again until it is done, and holds
# what is there then against what a job that was never stopped made: the same files, and the same bytes
# where they are promised.
#
#   scripts/soak.sh [options]
#
#   --kills N      how many (default: 100)
#   --seconds N    begin no further kill after so many seconds (default: as long as it takes)
#   --seed N       of the times and the order (default: 1)
#   --kinds LIST   some of prepare,train,evaluate,prune,analyze,report,ablate,oov,claims (default: all)
#   --jobs N       how many at once (default: 2)
#   --output DIR   where to work (default: soak/ in the project's folder). What differs stays there
#   --help         this text
#
# Works on a CPU, with few pairs of the shipped corpus and tiny models; the commands are those on PATH.
# Exits with 1 where anything differs, is left over, or does not end, and says what.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/lib/common.sh
source "$root/examples/lib/common.sh"

given=(--output "$root/soak")
while (($# > 0)); do
    case $1 in
    --kills | --seconds | --jobs) require_value "$1" $# && require_positive_integer "$1" "$2" && given+=("$1" "$2") && shift ;;
    --seed | --kinds) require_value "$1" $# && given+=("$1" "$2") && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && given+=("$1" "$(absolute_path "$2")") && shift ;;
    --help | -h) print_head_comment "$0" && exit 0 ;;
    *) usage_error "unknown option '$1': use --kills, --seconds, --seed, --kinds, --jobs, --output or --help" ;;
    esac
    shift
done
require_commands python3 fairseq-entmax fairseq-train fairseq-generate fairseq-preprocess sacrebleu
PYTHONPATH=$TOOLS${PYTHONPATH:+:$PYTHONPATH} exec python3 "$root/scripts/soak/main.py" "${given[@]}"
