#!/usr/bin/env bash
# One job of claims.sh, for one recipe. Its output goes to a log; if it fails, the end of the log is shown:
#
#   claims_job.sh LOGS RECIPE OUTPUT RECORD DEVICE KIND MODEL SIZE SEED
#
#   model      trains a model and its variants (pruned, continued, from scratch), and records what
#              each of them does
#   speed      times the large models of the seed that claims compare, in turns
#   parse      parses the source of the test set, if a tagger is available
#
# A run in the record counts as done. CLAIMS_QUICK marks a trial; CLAIMS_EPOCHS replaces the recipe's
# number of epochs.
set -euo pipefail
if [[ $1 != - ]]; then
    log=$1/$(basename "$3").$6.$7.$8.$9.log
    "$0" - "${@:2}" >>"$log" 2>&1 && exit
    printf -- '--- the last lines of %s\n%s\n' "$log" "$(tail -n 20 "$log")" >&2
    exit 1
fi
RECIPE_FOLDER=$2 output=$3 record=$4 device=$5 kind=$6 model=$7 size=$8
export RECIPE_LOCK=$output SEED=$9 # claims.sh holds the lock
source "$(dirname "$0")/recipe.sh"
source "$(dirname "$0")/run.sh"
source "$(dirname "$0")/pruning.sh"

epochs=${CLAIMS_EPOCHS:-$LENGTH}
pruned=(softmax entmax) ablated=(softmax entmax) budgets=(all=24) analysis=() speed=()
if [[ $(basename "$RECIPE") == bible_es_en ]]; then budgets+=(all=36 encoder=4); fi
# p is never below 1 / (trials + 1): with so many, it can be small enough for all heads at once
ablation=(--trials 10000)
if [[ -n ${CLAIMS_QUICK-} ]]; then
    # The rise of alpha must end within the few updates of a trial
    epochs=${CLAIMS_EPOCHS:-1} EPOCH_UPDATES=8 SEARCH_UPDATES=8 RECOVERY_UPDATES=6
    pruned=(softmax) ablated=(softmax) budgets=(all=24)
    analysis=(--relevance-sentences 4 --gradient-sentences 4)
    ablation+=(--heads 'encoder-self:0.0;cross:1.2')
    speed=(--sentences 2 --updates 2 --rounds 1)
fi
options=(--alpha-warmup-updates 0) # where the recipe has them rise
case $model in
cross-*) mapping=softmax options+=(--cross-attn-mapping "${model#cross-}") ;;
sparse-encoder) mapping=softmax options+=(--encoder-self-attn-mapping sparsemax) ;;
rise*-*) # rise50-sparsemax: alpha rises in the first 50 % of the updates
    share=${model%%-*} && share=${share#rise}
    mapping=${model#*-} options=(--alpha-warmup-updates "$((share * epochs * EPOCH_UPDATES / 100))") ;;
*) mapping=$model ;;
esac
[[ $mapping != entmax-tv ]] || mapping=entmax:tv=learned # with a colon, fairseq would take a run's path for two
on_device=(--num-workers 0) larger=() from_scratch=() searching=() recovering=()
if [[ $device == cpu ]]; then on_device+=(--cpu); fi
if [[ $size == large ]]; then
    prune_schedules
    larger=("${PRUNE_MODEL[@]}")
fi
baseline=$model-$size-seed$SEED
SHARING=(--processes 1) # jobs run at once, each on one thread and one GPU
is_recorded() { [[ -f $record/$1.json.xz ]]; }
# one_of WORD WORD...: whether the first is among the others
one_of() { [[ " ${*:2} " == *" $1 "* ]]; }

# record_run RUN ROLE [OPTION...]: records what a trained model does; options are those of claims_record.py
record_run() {
    local folder=$output/runs/$1 parses=() scores=loss
    local data=("$output/data-bin" "${TASK[@]}" --gen-subset test --path "$(best_of "$1")" --max-tokens 4000)
    if [[ -f $output/test.conllu ]]; then parses=(--conllu "$output/test.conllu"); fi
    evaluate_run "$1" "$mapping"
    fairseq-entmax analyze "${data[@]}" --names "$1" --output "$folder/analysis" --overwrite --sentences '' \
        "${on_device[@]}" "${parses[@]}" "${analysis[@]}"
    if [[ $2 == trained ]] && one_of "$model" "${ablated[@]}"; then
        if [[ $size == small ]]; then scores=loss,bleu; fi
        fairseq-entmax ablate "${data[@]}" --output "$folder/ablation" --scores "$scores" "${ablation[@]}" \
            "${GENERATION[@]}" "${REMOVE_BPE[@]}" "${on_device[@]}"
    fi
    python3 "$TOOLS/claims_record.py" run "$record" --output "$output" --corpus "$(basename "$RECIPE")" --run "$1" \
        --model "$model" --size "$size" --seed "$SEED" --role "$2" "${@:3}"
}

# prune BUDGET: prunes to the budget; for 24 heads, also trains a model with the same heads from scratch
prune() {
    local name=$baseline-${1/=/} whole
    is_recorded "$name-pruned" && { [[ $1 != all=24 ]] || is_recorded "$name-scratch"; } && return
    search "$name-search" "$baseline" "$1" "$mapping"
    take_out "$name-search"
    recover "$name-pruned" "$name-search" "$mapping"
    is_recorded "$name-pruned" || record_run "$name-pruned" pruned --budget "${1/=/}" --from-run "$baseline" --search "$name-search"
    if [[ $1 == all=24 ]] && ! is_recorded "$name-scratch"; then
        whole=$(updates_of "$baseline" "$name-search" "$name-pruned")
        train_from_scratch "$name-scratch" "$name-pruned" "$whole" "$mapping" "${options[@]}"
        record_run "$name-scratch" scratch --budget "${1/=/}"
    fi
}

# make_model: trains the model and its variants, unless the record has all of them
make_model() {
    local budget runs=("$baseline") run missing=0
    if [[ $size == large ]] && one_of "$model" "${pruned[@]}"; then
        runs+=("$baseline-continued" "$baseline-all24-scratch")
        for budget in "${budgets[@]}"; do runs+=("$baseline-${budget/=/}-pruned"); done
    fi
    for run in "${runs[@]}"; do is_recorded "$run" || missing=1; done
    if ((!missing)); then return; fi
    train_run "$baseline" "$LENGTH_UNIT" "$epochs" "$mapping" "${larger[@]}" \
        "${options[@]}" "${from_scratch[@]}"
    is_recorded "$baseline" || record_run "$baseline" trained
    if ((${#runs[@]} == 1)); then return; fi
    if ! is_recorded "$baseline-continued"; then
        continue_run "$baseline-continued" "$baseline" "$mapping"
        record_run "$baseline-continued" continued --from-run "$baseline"
    fi
    for budget in "${budgets[@]}"; do prune "$budget"; done
}

# Only claims on syntax need a parse. The words of the data must be those of the text.
parse() {
    if [[ $TOKENIZER != none || -f $output/test.conllu ]]; then return; fi
    fairseq-entmax tag "$output/text/test.$SOURCE" --language "$SOURCE" --output "$output/test.conllu" ||
        say "no parses, for the reason above: claims about syntax will not be measured"
}

measure_speed() {
    [[ -f $record/speed.json ]] || PYTHONPATH=$ROOT/scripts/benchmarks${PYTHONPATH:+:$PYTHONPATH} \
        python3 "$TOOLS/claims_speed.py" "$record/speed.json" \
        --output "$output" --device "$device" --seed "$SEED" "${speed[@]}"
}

require_data "$output"
# On one line: bash reads a script while it runs, and this file may have changed by then
case $kind in model) make_model ;; speed) measure_speed ;; parse) parse ;; esac; exit
