#!/usr/bin/env bash
# From nothing to the learned alpha of each head: makes a virtual environment, installs
# the project, prepares the Spanish-English data that comes with it, trains a small
# Transformer, translates the test verses, scores them, prints the alpha table, and draws
# a report of what every head does.
#
#   scripts/quickstart.sh [options]
#
#   --epochs N       epochs to train (default: 5)
#   --mapping SPEC   attention mapping: softmax, sparsemax, entmax15, entmax,
#                    entmax:alpha=1.33, ... (default: entmax, alpha learned per head)
#   --compare        train softmax, entmax15 and entmax one after the other, print a table
#                    of their scores and draw one report of all three
#   --cpu, --gpu     where to train (default: a GPU if torch finds one, else the CPU)
#   --output DIR     where to write (default: quickstart/ in the project's folder)
#   --help           this text
#
# Environment: VENV is the virtual environment (default: .venv in the project's folder),
# PYTHON the Python that makes it (default: python3; setup.py lists those that are tested), and
# TORCH_BUILD the build of torch on Linux, cpu or cuda (default: cuda with --gpu or an NVIDIA
# GPU, else cpu).
#
# Can be stopped and run again at any time: it resumes where it stopped.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
recipe=$root/examples/bible_es_en
# shellcheck source=examples/lib/signals.sh
source "$root/examples/lib/signals.sh"
# shellcheck source=examples/lib/common.sh
source "$root/examples/lib/common.sh"
# shellcheck source=scripts/lib/venv.sh
source "$root/scripts/lib/venv.sh"

epochs=5
mapping=
compare=false
device=auto
output=$root/quickstart
while (($# > 0)); do
    case $1 in
    --epochs) require_value "$1" $# && require_positive_integer "$1" "$2" && epochs=$2 && shift ;;
    --mapping) require_value "$1" $# && require_mapping "option $1" "$2" && mapping=$2 && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") && shift ;;
    --compare) compare=true ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) print_head_comment "$0" && exit 0 ;;
    *) usage_error "unknown option '$1': use --epochs, --mapping, --compare, --cpu, --gpu, --output or --help" ;;
    esac
    shift
done
if $compare && [[ -n $mapping ]]; then
    usage_error "option --mapping got '$mapping' together with --compare, which trains softmax, entmax15 and entmax: give only one of them"
fi
mapping=${mapping:-entmax}
venv=$(absolute_path "${VENV:-$root/.venv}")
# The default is in the project's folder, whose path may have a colon too
[[ $venv != *:* ]] || usage_error "VENV is '$venv': the path of a virtual environment cannot have a colon, set VENV to another"

require_python "${PYTHON:-python3}"
hold_lock "$output" "${PYTHON:-python3}"
models=1
if $compare; then models=3; fi
say "quickstart: installs fairseq-entmax in $venv, trains on 29,076 verses ($models model(s), $epochs epochs), translates 1,000 and draws a report: about $((4 * epochs * models)) minutes on two idle CPU cores; the training then shows how much time is left here"
if [[ $device == gpu ]]; then export TORCH_BUILD=${TORCH_BUILD:-cuda}; fi
ensure_venv "$venv" fairseq,report
export PATH=$venv/bin:$PATH
require_known_mapping "option --mapping" "$mapping"
device=$(choose_device "$device")
# Larger batches and fewer epochs than the recipe: as good in two thirds of the time
export BATCH_TOKENS=${BATCH_TOKENS:-1250}

"$recipe/prepare.sh" --output "$output"
mappings=("$mapping") common=(--output "$output" --epochs "$epochs" "--$device") sharing=() named=()
if $compare; then mappings=(softmax entmax15 entmax); fi
if [[ $device == cpu && $(cores) -gt 1 ]]; then sharing=(--processes 2); fi
for one in "${mappings[@]}"; do
    "$recipe/train.sh" "${common[@]}" "${sharing[@]}" "$one" --lr 0.005
    "$recipe/evaluate.sh" "${common[@]}" "$one"
    named+=(--mapping "$one")
done
"$recipe/report.sh" "${common[@]}" "${named[@]}"
alpha=$output/runs/$(run_name "$mapping" "$epochs" epochs)/alpha.txt
say "alpha of each head ($alpha)"
cat "$alpha"
