# prune.sh of every recipe that prunes: prunes heads of trained models to several budgets,
# trains models with the same heads from scratch, and prints one table.
#
# A recipe's dataset.sh says, beside what recipe.sh lists:
#
#   PRUNE_LAYERS PRUNE_HEADS   layers of encoder and decoder, heads in each attention of a layer
#   PRUNE_BUDGETS              the default of --budgets
#   PRUNE_UPDATES              updates of the fine-tuning in which heads are pruned
#   PRUNE_MODEL                array: options of the pruned models beside MODEL
#   prune_schedules            function: sets the arrays from_scratch and fine_tuning, options of
#                              fairseq-train for models trained from scratch and for fine-tuning,
#                              and tuning_length, in $LENGTH_UNIT; reads LENGTH and PRUNE_UPDATES
#
# shellcheck shell=bash

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

SPEED_SENTENCES=100
PRUNE_MODEL=(${PRUNE_MODEL[@]+"${PRUNE_MODEL[@]}"})

prune_help() {
    print_head_comment "$0"
    cat <<TEXT

Prunes heads of trained Transformers to several budgets, trains models with the same heads
from scratch, and prints one table: heads left, BLEU, parameters, speed of translation.

  prune.sh [options] [-- options of fairseq-train]

  --mapping SPEC        only this attention mapping (default: softmax, then entmax)
  --budgets LIST        heads to keep: all=N of all three attentions together, encoder=N of the
                        encoder's alone with the decoder frozen, E/D/C of encoder-self,
                        decoder-self and cross attention each
                        (default: $PRUNE_BUDGETS)
  $(printf '%-21s' "--$LENGTH_UNIT N") length of the trainings from scratch (default: $LENGTH)
  --pruning-updates N   updates of the fine-tuning in which heads are pruned (default: $PRUNE_UPDATES)
  --processes N, --most-tokens N
                        as in train.sh
  --output DIR          where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                        project's folder); the runs go to DIR/runs/prune-*, the table to
                        DIR/pruning.tsv
  --cpu, --gpu          where to train and translate (default: a GPU where torch finds one)
  --help                this text

Can be stopped and run again: it goes on where it stopped. Two mappings can run side by side, in
folders of their own; one call with both then prints their table, once the runs are in one folder.
TEXT
}

output=$DEFAULT_OUTPUT
mappings=(softmax entmax)
budgets=$PRUNE_BUDGETS
device=auto
sharing=()
while (($# > 0)); do
    case $1 in
    --mapping) require_value "$1" $# && require_mapping "option $1" "$2" && mappings=("$2") && shift ;;
    --budgets) require_value "$1" $# && budgets=$2 && shift ;;
    "--$LENGTH_UNIT") require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 && shift ;;
    --pruning-updates) require_value "$1" $# && require_positive_integer "$1" "$2" && PRUNE_UPDATES=$2 && shift ;;
    --processes | --most-tokens) require_value "$1" $# && require_positive_integer "$1" "$2" && sharing+=("$1" "$2") && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$2 && shift ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --) break ;;
    --help | -h) prune_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --mapping, --budgets, --$LENGTH_UNIT, --pruning-updates, --processes, --most-tokens, --output, --cpu, --gpu, --help, or -- before options of fairseq-train" ;;
    esac
    shift
done
if [[ ${1-} == -- ]]; then shift; fi
further=("$@") # for every training
((PRUNE_UPDATES >= 4)) || usage_error "option --pruning-updates got '$PRUNE_UPDATES': give 4 or more, the heads are decided after three quarters of them"
each=$((PRUNE_LAYERS * PRUNE_HEADS))
IFS=, read -r -a budget_list <<<"$budgets"
((${#budget_list[@]} > 0)) || usage_error "option --budgets got '$budgets': give some, such as $PRUNE_BUDGETS"

# require_budget BUDGET: and not more heads than there are
require_budget() {
    local number most=$each
    if [[ $1 == all=* ]]; then most=$((3 * each)); fi
    if [[ $1 =~ ^(all|encoder)=[0-9]{1,4}$ || $1 =~ ^[0-9]{1,4}/[0-9]{1,4}/[0-9]{1,4}$ ]]; then
        for number in $(tr -c '0-9' ' ' <<<"$1"); do ((10#$number <= most)) || break; done
        ((10#$number <= most)) && return
    fi
    usage_error "option --budgets got '$1': give all=N with N up to $((3 * each)), encoder=N with N up to $each, or three numbers up to $each, such as 2/3/3"
}
for budget in "${budget_list[@]}"; do require_budget "$budget"; done
output=$(absolute_path "$output")
require_plain_path --output "$output"

require_commands python3 fairseq-train fairseq-generate sacrebleu fairseq-entmax
for mapping in "${mappings[@]}"; do require_known_mapping "option --mapping" "$mapping"; done
device=$(choose_device "$device")
hold_lock "$output"
require_data "$output"
WRITING=$output

from_scratch=() fine_tuning=() tuning_length=1
prune_schedules
to_budget=(--criterion label_smoothed_cross_entropy_with_head_l0 --patience -1
    --l0-warmup-updates $((PRUNE_UPDATES * 486 / 1000)) --decide-heads-at $((PRUNE_UPDATES * 729 / 1000)))

# gates_of BUDGET: the options that prune to it
gates_of() {
    local -a numbers
    case $1 in
    all=*) echo "--head-gates encoder-self,decoder-self,cross --target-heads ${1#*=}" ;;
    encoder=*) echo "--head-gates encoder-self --target-heads encoder-self=${1#*=} --freeze-decoder" ;;
    *)
        IFS=/ read -r -a numbers <<<"$1"
        echo "--head-gates encoder-self,decoder-self,cross --target-heads encoder-self=${numbers[0]},decoder-self=${numbers[1]},cross=${numbers[2]}"
        ;;
    esac
}

# run_of MAPPING NAME: the folder of a run
run_of() {
    printf 'prune-%s-%s\n' "$(mapping_name "$1")" "$2"
}

# name_of BUDGET: as a part of a run's name
name_of() {
    local name=${1//\//-}
    printf '%s\n' "${name/=/}"
}

# baseline_of MAPPING: its run; the one of train.sh, where that is the same model
baseline_of() {
    if ((${#PRUNE_MODEL[@]} + ${#from_scratch[@]} + ${#further[@]} > 0)); then
        run_of "$1" baseline
    else
        run_name "$1" "$LENGTH" "$LENGTH_UNIT"
    fi
}

checkpoint_of() { printf '%s\n' "$output/runs/$1/checkpoints/checkpoint_best.pt"; }

# train RUN LENGTH MAPPING OPTION...
train() {
    local run=$1 length=$2 mapping=$3
    shift 3
    "$RECIPE/train.sh" --output "$output" "--$LENGTH_UNIT" "$length" --name "$run" "--$device" \
        ${sharing[@]+"${sharing[@]}"} "$mapping" ${PRUNE_MODEL[@]+"${PRUNE_MODEL[@]}"} \
        "$@" ${further[@]+"${further[@]}"}
}

evaluate() { "$RECIPE/evaluate.sh" --output "$output" --name "$1" "--$device" "$2"; }

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
    local mapping=$1 baseline budget run gated
    local -a start gates heads
    baseline=$(baseline_of "$mapping")
    train "$baseline" "$LENGTH" "$mapping" ${from_scratch[@]+"${from_scratch[@]}"}
    evaluate "$baseline" "$mapping"
    start=(--finetune-from-model "$(checkpoint_of "$baseline")")

    for budget in "${budget_list[@]}"; do
        gated=$(run_of "$mapping" "$(name_of "$budget")")
        read -r -a gates < <(gates_of "$budget")
        train "$gated" "$tuning_length" "$mapping" "${fine_tuning[@]}" "${start[@]}" \
            "${to_budget[@]}" "${gates[@]}"
        take_out "$gated" "$gated-pruned"
        evaluate "$gated-pruned" "$mapping"
    done

    # What the fine-tuning itself does to a model, without any pruning
    run=$(run_of "$mapping" continued)
    train "$run" "$tuning_length" "$mapping" "${fine_tuning[@]}" "${start[@]}"
    evaluate "$run" "$mapping"

    for budget in "${budget_list[@]}"; do
        gated=$(run_of "$mapping" "$(name_of "$budget")")
        read -r -a heads < <(fairseq-entmax prune --print-config "$(checkpoint_of "$gated-pruned")")
        train "$gated-scratch" "$LENGTH" "$mapping" ${from_scratch[@]+"${from_scratch[@]}"} "${heads[@]}"
        evaluate "$gated-scratch" "$mapping"
    done
}

# runs_of MAPPING: the runs of the table, in its order
runs_of() {
    local budget gated
    baseline_of "$1"
    run_of "$1" continued
    for budget in "${budget_list[@]}"; do
        gated=$(run_of "$1" "$(name_of "$budget")")
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
    step=$(fingerprint speed "$device" "$SPEED_SENTENCES" "${sums[@]}")
    if is_done "$file.done" "$step" "$file"; then
        say "speed of $1: done before"
        return
    fi
    say "speed of $1: ${#paths[@]} models in turns"
    if [[ $device == gpu ]]; then on=cuda; fi
    rm -f "$file.done"
    python3 "$ROOT/scripts/benchmarks/pruned_generation.py" "$output/data-bin" --path "${paths[@]}" \
        --sentences "$SPEED_SENTENCES" --repeats 3 --device "$on" --json "$file.tmp" \
        >"$file.log" 2>&1 || {
        tail -n 30 "$file.log" >&2
        die "the measurement of speed failed: its last messages are above, all of them in $file.log"
    }
    mv -f "$file.tmp" "$file"
    mark_done "$file.done" "$step"
}

# table_of MAPPING SPEED: one line a run
table_of() {
    local run checkpoint bleu heads name
    while read -r run; do
        checkpoint=$(checkpoint_of "$run")
        bleu=$(score_of BLEU "$output/runs/$run/scores.txt") || return
        heads=$(fairseq-entmax prune --print-config "$checkpoint" | heads_in_words) || return
        name=${run#"$(run_of "$1" "")"}
        if [[ $run == "$(baseline_of "$1")" ]]; then name=baseline; fi
        printf '%s\t%s\t%s\t%s\t' "$1" "$name" "$heads" "$bleu"
        python3 - "$output/runs/$2" "$checkpoint" <<'PY' || return
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
    for mapping in "${mappings[@]}"; do
        table_of "$mapping" "$(run_of "$mapping" speed.json)" || return
    done
}

rm -f "$output/pruning.tsv"
for mapping in "${mappings[@]}"; do prune_and_compare "$mapping"; done
for mapping in "${mappings[@]}"; do measure_speed "$mapping" "$(run_of "$mapping" speed.json)"; done
write_whole "$output/pruning.tsv" all_tables
say "pruning ($output/pruning.tsv)"
awk -F '\t' '{ printf "%-9s %-18s %-12s %-12s %-12s %6s %11s %12s %6s\n", $1, $2, $3, $4, $5, $6, $7, $8, $9 }' "$output/pruning.tsv"
