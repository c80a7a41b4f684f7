#!/usr/bin/env bash
# Prunes heads of trained Transformers to several budgets, trains models with the same heads
# from scratch, and prints one table: heads left, BLEU, parameters, speed of translation.
#
#   prune.sh [options]
#
#   --mapping SPEC   only this attention mapping (default: softmax, then entmax)
#   --budgets LIST   heads to keep: all=N of all three attentions together, encoder=N of the
#                    encoder's alone with the decoder frozen
#                    (default: all=48,all=24,encoder=12,encoder=4)
#   --epochs N       epochs of the models that are trained from scratch (default: 4)
#   --updates N      updates in an epoch of this data, of which learning rates and budgets
#                    take their schedule (default: 1030)
#   --output DIR     where prepare.sh wrote its data (default: quickstart/ in the project's
#                    folder); the runs go to DIR/runs/prune-*, the table to DIR/pruning.tsv
#   --cpu, --gpu     where to train and translate (default: a GPU where torch finds one)
#   --help           this text
#
# Needs fairseq-train, fairseq-generate, sacrebleu and fairseq-entmax on PATH. Can be stopped
# and run again: it goes on where it stopped. Two mappings can run side by side, in folders of
# their own; one call with both then prints their table, once the runs are in one folder.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/common.sh
source "$here/../common.sh"

HEADS=8
LAYERS=3
BEAM_SENTENCES=100

output=$(cd "$here/../.." && pwd)/quickstart
mappings=(softmax entmax)
budgets=all=48,all=24,encoder=12,encoder=4
epochs=4
updates=1030
device=auto
while (($# > 0)); do
    case $1 in
    --mapping) require_value "$1" $# && require_mapping "option $1" "$2" && mappings=("$2") && shift ;;
    --budgets) require_value "$1" $# && budgets=$2 && shift ;;
    --epochs) require_value "$1" $# && require_positive_integer "$1" "$2" && epochs=$2 && shift ;;
    --updates) require_value "$1" $# && require_positive_integer "$1" "$2" && updates=$2 && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$2 && shift ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) print_head_comment "$0" && exit 0 ;;
    *) usage_error "unknown option '$1': use --mapping, --budgets, --epochs, --updates, --output, --cpu, --gpu or --help" ;;
    esac
    shift
done
((updates >= 4)) || usage_error "option --updates got '$updates': give 4 or more, the heads are decided after three quarters of them"
IFS=, read -r -a budget_list <<<"$budgets"
((${#budget_list[@]} > 0)) || usage_error "option --budgets got '$budgets': give some, such as all=48,encoder=12"
for budget in "${budget_list[@]}"; do
    case $budget in all=*) most=$((3 * LAYERS * HEADS)) ;; *) most=$((LAYERS * HEADS)) ;; esac
    [[ $budget =~ ^(all|encoder)=(0|[1-9][0-9]{0,3})$ && ${BASH_REMATCH[2]} -le $most ]] ||
        usage_error "option --budgets got '$budget': give all=N with N up to $((3 * LAYERS * HEADS)), or encoder=N with N up to $((LAYERS * HEADS))"
done
output=$(absolute_path "$output")
require_plain_path --output "$output"

require_commands python3 fairseq-train fairseq-generate sacrebleu fairseq-entmax
for mapping in "${mappings[@]}"; do require_known_mapping "option --mapping" "$mapping"; done
device=$(choose_device "$device")
hold_lock "$output"
[[ -f $output/data-bin/.done ]] || die "no data in $output/data-bin: run prepare.sh --output '$output' first"

shape=(--encoder-layers "$LAYERS" --decoder-layers "$LAYERS"
    --encoder-attention-heads "$HEADS" --decoder-attention-heads "$HEADS")
from_scratch=(--lr 0.004 --lr-scheduler polynomial_decay --total-num-update $((epochs * updates)))
fine_tuning=(--lr 0.002 --lr-scheduler polynomial_decay --warmup-updates $((updates * 49 / 1000))
    --total-num-update "$updates")
to_budget=(--criterion label_smoothed_cross_entropy_with_head_l0
    --l0-warmup-updates $((updates * 486 / 1000)) --decide-heads-at $((updates * 729 / 1000)))

# run_of MAPPING NAME: the folder of a run
run_of() {
    local name
    name=$(run_name "$1" 0)
    printf 'prune-%s-%s\n' "${name%-0epochs}" "$2"
}

checkpoint_of() { printf '%s\n' "$output/runs/$1/checkpoints/checkpoint_best.pt"; }

# train RUN EPOCHS MAPPING OPTION...
train() {
    local run=$1 length=$2 mapping=$3
    shift 3
    "$here/train.sh" --output "$output" --epochs "$length" --name "$run" "--$device" "$mapping" \
        "${shape[@]}" "$@"
}

evaluate() { "$here/evaluate.sh" --output "$output" --name "$1" "--$device" "$2"; }

# take_out GATED PRUNED: the pruned model is a run of its own, which evaluate.sh can judge
take_out() {
    local gated folder=$output/runs/$2 step
    gated=$(checkpoint_of "$1")
    step=$(fingerprint prune "$(sha256_of "$gated")")
    if is_done "$folder/.train.done" "$step" "$folder/checkpoints/checkpoint_best.pt"; then
        say "prune $2: done before"
        return
    fi
    say "prune $2: take the closed heads out"
    rm -f "$folder/.train.done"
    mkdir -p "$folder/checkpoints"
    write_whole "$folder/pruning.txt" fairseq-entmax prune "$gated" \
        --output "$folder/checkpoints/checkpoint_best.pt" --overwrite
    cat "$folder/pruning.txt"
    mark_done "$folder/.train.done" "$step"
}

# prune_and_compare MAPPING: every run of one mapping
prune_and_compare() {
    local mapping=$1 baseline budget kind number run gated heads
    local start
    baseline=$(run_of "$mapping" baseline)
    train "$baseline" "$epochs" "$mapping" "${from_scratch[@]}"
    evaluate "$baseline" "$mapping"
    start=(--finetune-from-model "$(checkpoint_of "$baseline")")

    for budget in "${budget_list[@]}"; do
        kind=${budget%=*} number=${budget#*=}
        gated=$(run_of "$mapping" "$kind$number")
        if [[ $kind == all ]]; then
            train "$gated" 1 "$mapping" "${fine_tuning[@]}" "${start[@]}" "${to_budget[@]}" \
                --head-gates encoder-self,decoder-self,cross --target-heads "$number"
        else
            train "$gated" 1 "$mapping" "${fine_tuning[@]}" "${start[@]}" "${to_budget[@]}" \
                --head-gates encoder-self --target-heads "encoder-self=$number" --freeze-decoder
        fi
        take_out "$gated" "$gated-pruned"
        evaluate "$gated-pruned" "$mapping"
    done

    # What the fine-tuning itself does to a model, without any pruning
    run=$(run_of "$mapping" continued)
    train "$run" 1 "$mapping" "${fine_tuning[@]}" "${start[@]}"
    evaluate "$run" "$mapping"

    for budget in "${budget_list[@]}"; do
        gated=$(run_of "$mapping" "${budget%=*}${budget#*=}")
        read -r -a heads < <(fairseq-entmax prune --print-config "$(checkpoint_of "$gated-pruned")")
        train "$gated-scratch" "$epochs" "$mapping" "${from_scratch[@]}" "${heads[@]}"
        evaluate "$gated-scratch" "$mapping"
    done
}

# runs_of MAPPING: the runs of the table, in its order
runs_of() {
    local budget gated
    run_of "$1" baseline
    run_of "$1" continued
    for budget in "${budget_list[@]}"; do
        gated=$(run_of "$1" "${budget%=*}${budget#*=}")
        printf '%s\n' "$gated-pruned" "$gated-scratch"
    done
}

# measure_speed MAPPING: all models of a mapping take turns
measure_speed() {
    local file=$output/runs/$2 run step paths=() sums=() on=cpu
    while read -r run; do
        paths+=("$(checkpoint_of "$run")")
        sums+=("$(sha256_of "$(checkpoint_of "$run")")")
    done < <(runs_of "$1")
    step=$(fingerprint speed "$device" "$BEAM_SENTENCES" "${sums[@]}")
    if is_done "$file.done" "$step" "$file"; then
        say "speed of $1: done before"
        return
    fi
    say "speed of $1: ${#paths[@]} models in turns"
    if [[ $device == gpu ]]; then on=cuda; fi
    rm -f "$file.done"
    python3 "$here/../../benchmarks/pruned_generation.py" "$output/data-bin" --path "${paths[@]}" \
        --sentences "$BEAM_SENTENCES" --repeats 3 --device "$on" --json "$file.tmp" \
        >"$file.log" 2>&1 || {
        tail -n 30 "$file.log" >&2
        die "the measurement of speed failed: its last messages are above, all of them in $file.log"
    }
    mv -f "$file.tmp" "$file"
    mark_done "$file.done" "$step"
}

# table_of MAPPING SPEED: one line a run
table_of() {
    local run checkpoint bleu heads
    while read -r run; do
        checkpoint=$(checkpoint_of "$run")
        bleu=$(score_of BLEU "$output/runs/$run/scores.txt")
        heads=$(fairseq-entmax prune --print-config "$checkpoint" | heads_in_words)
        printf '%s\t%s\t%s\t%s\t' "$1" "${run#"$(run_of "$1" "")"}" "$heads" "$bleu"
        python3 - "$output/runs/$2" "$checkpoint" <<'PY'
import json
import sys

models = {row["model"]: row for row in json.load(open(sys.argv[1], encoding="utf-8"))["models"]}
row = models[sys.argv[2]]
print(f"{row['parameters']}\t{row['sentences_per_second']:.1f}\t{row['ratio']:.2f}")
PY
    done < <(runs_of "$1")
}

# heads_in_words: "--encoder-self-attn-heads 0,2,0 --decoder-..." to "2 (0,2,0)	14 (8,5,1) ..."
heads_in_words() {
    awk '{
        for (i = 2; i <= NF; i += 2) {
            n = split($i, counts, ","); sum = 0
            for (k = 1; k <= n; k++) sum += counts[k]
            printf "%s%d (%s)", (i > 2 ? "\t" : ""), sum, $i
        }
        print ""
    }'
}

all_tables() {
    local mapping
    printf 'mapping\tmodel\tencoder-self\tdecoder-self\tcross\tBLEU\tparameters\tsentences/s\tspeed\n'
    for mapping in "${mappings[@]}"; do table_of "$mapping" "$(run_of "$mapping" speed.json)"; done
}

rm -f "$output/pruning.tsv"
for mapping in "${mappings[@]}"; do prune_and_compare "$mapping"; done
for mapping in "${mappings[@]}"; do measure_speed "$mapping" "$(run_of "$mapping" speed.json)"; done
write_whole "$output/pruning.tsv" all_tables
say "pruning ($output/pruning.tsv)"
awk -F '\t' '{ printf "%-9s %-18s %-12s %-12s %-12s %6s %11s %12s %6s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }' "$output/pruning.tsv"
