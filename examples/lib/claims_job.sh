#!/usr/bin/env bash
# One step of claims.sh, for one run of one recipe:
#
#   claims_job.sh RECIPE OUTPUT DEVICE KIND RUN MAPPING [ARGUMENT...]
#
#   train SIZE [OPTION...]     from scratch; SIZE is small or large
#   search BASELINE BUDGET     for heads to take out, from the baseline on
#   recover SEARCH             without them, trained on
#   continue BASELINE          as long as both, with all heads
#   scratch PRUNED RUN...      a model with the heads of a pruned run, from scratch
#   pace MODEL REFERENCE       how fast two runs of other mappings train, in turns; of no run
#   equaltime REFERENCE        from scratch, for as long as the reference's updates take
#   measure                    translate and score the test set, and look at what the heads do on it
#   ablate SCORES              remove each head
#   parse                      parses of the test set's source, where a tagger can be had; of no run
#
# RECIPE is the recipe's folder, OUTPUT where its prepare.sh wrote. Each step is skipped where it was
# done before, with the same settings. Environment: CLAIMS_ASKED_EPOCHS, in place of the recipe's;
# CLAIMS_ASKED_PATIENCE, 0 or unset for none; for a trial CLAIMS_SEARCH_UPDATES, CLAIMS_RECOVERY_UPDATES,
# CLAIMS_ABLATED (heads), CLAIMS_ANALYSIS (options of fairseq-entmax analyze) and CLAIMS_PACE (of pace.py
# measure). CLAIMS_CODE changes with the installed package: what other code measured is measured again.
set -euo pipefail
RECIPE_FOLDER=$1
# shellcheck source=examples/lib/recipe.sh
source "$(dirname "$0")/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "$0")/run.sh"
# shellcheck source=examples/lib/pruning.sh
source "$(dirname "$0")/pruning.sh"

output=$2 device=$3 kind=$4 run=$5 mapping=$6
shift 6
folder=$output/runs/$run
SEARCH_UPDATES=${CLAIMS_SEARCH_UPDATES:-$SEARCH_UPDATES}
RECOVERY_UPDATES=${CLAIMS_RECOVERY_UPDATES:-$RECOVERY_UPDATES}
epochs=${CLAIMS_ASKED_EPOCHS:-${CLAIMS_LENGTH:-8}}
patience=${CLAIMS_ASKED_PATIENCE:-0}
on_device=()
if [[ $device == cpu ]]; then on_device=(--cpu); fi

# train_from_nothing SIZE [OPTION...]
train_from_nothing() {
    local larger=() patient=() from_scratch=() searching recovering
    if [[ $1 == large ]]; then
        prune_schedules
        larger=(${PRUNE_MODEL[@]+"${PRUNE_MODEL[@]}"})
    fi
    if ((patience > 0)); then patient=(--patience "$patience"); fi
    train_run "$run" "$LENGTH_UNIT" "$epochs" "$mapping" ${larger[@]+"${larger[@]}"} "${@:2}" \
        ${from_scratch[@]+"${from_scratch[@]}"} ${patient[@]+"${patient[@]}"}
}

# pace MODEL REFERENCE: measured once, as other numbers of updates are other models
pace() {
    local step further=()
    read -r -a further <<<"${CLAIMS_PACE-}"
    step=$(fingerprint pace "$(files_fingerprint "$(best_of "$1")" "$(best_of "$2")")" "$device" \
        ${further[@]+"${further[@]}"})
    if is_done "$output/.pace.done" "$step" "$output/pace.json"; then
        say "pace of $1 and $2: done before"
        return
    fi
    say "pace of $1 and $2: how fast they train, in turns"
    rm -f "$output/.pace.done"
    python3 "$TOOLS/pace.py" measure "$1" "$2" --output "$output" --json "$output/pace.json" \
        --device "$device" ${further[@]+"${further[@]}"}
    mark_done "$output/.pace.done" "$step"
}

# equal_time REFERENCE
equal_time() {
    local updates from_scratch searching recovering
    updates=$(updates_of "$1")
    updates=$(python3 "$TOOLS/pace.py" updates "$output/pace.json" "$updates")
    prune_schedules
    train_run "$run" updates "$updates" "$mapping" ${PRUNE_MODEL[@]+"${PRUNE_MODEL[@]}"} \
        ${from_scratch[@]+"${from_scratch[@]}"}
}

# forget_other_code: evaluate.sh, whose stamps know nothing of the code, does its part again
forget_other_code() {
    if is_done "$folder/.code.done" "${CLAIMS_CODE-}"; then return; fi
    rm -f "$folder"/.translate.done "$folder"/.scores.done "$folder"/.alpha.done
    mark_done "$folder/.code.done" "${CLAIMS_CODE-}"
}

analyze() {
    local data step further=() parses=()
    read -r -a further <<<"${CLAIMS_ANALYSIS-}"
    if [[ -f $output/test.conllu ]]; then parses=(--conllu "$output/test.conllu"); fi
    data=$(files_fingerprint "$(best_of "$run")" "$output"/data-bin/test.* ${parses[@]+"$output/test.conllu"})
    step=$(fingerprint analyze "$data" "$device" "${CLAIMS_CODE-}" ${further[@]+"${further[@]}"})
    if is_done "$folder/.analyze.done" "$step" "$folder/analysis/analysis.json"; then
        say "analyze $run: done before"
        return
    fi
    say "analyze $run: what every head does on the test set"
    rm -f "$folder/.analyze.done"
    fairseq-entmax analyze "$output/data-bin" "${TASK[@]}" --gen-subset test \
        --path "$(best_of "$run")" --names "$run" --output "$folder/analysis" --overwrite \
        --sentences '' --max-tokens 4000 --num-workers 0 ${on_device[@]+"${on_device[@]}"} \
        ${parses[@]+"${parses[@]}"} ${further[@]+"${further[@]}"}
    mark_done "$folder/.analyze.done" "$step"
}

# So many that p can be small enough for all heads at once: it is never below 1 / (resamples + 1)
RESAMPLES=10000

# ablate SCORES
ablate() {
    local step heads=()
    if [[ -n ${CLAIMS_ABLATED-} ]]; then heads=(--heads "$CLAIMS_ABLATED"); fi
    step=$(fingerprint ablate "$(files_fingerprint "$(best_of "$run")" "$output"/data-bin/test.*)" \
        "$1" "$RESAMPLES" "$device" "${CLAIMS_CODE-}" "${GENERATION[@]}" ${heads[@]+"${heads[@]}"})
    if is_done "$folder/.ablate.done" "$step" "$folder/ablation/ablation.json"; then
        say "ablate $run: done before"
        return
    fi
    say "ablate $run: remove each head"
    # It goes on with removals of the same model and settings
    if ! is_done "$folder/.ablate.begun" "$step"; then rm -rf "$folder/ablation"; fi
    mark_done "$folder/.ablate.begun" "$step"
    rm -f "$folder/.ablate.done"
    fairseq-entmax ablate "$output/data-bin" "${TASK[@]}" --gen-subset test --path "$(best_of "$run")" \
        --output "$folder/ablation" --scores "$1" --bootstrap "$RESAMPLES" "${GENERATION[@]}" ${REMOVE_BPE[@]+"${REMOVE_BPE[@]}"} \
        ${heads[@]+"${heads[@]}"} --max-tokens 4000 --num-workers 0 ${on_device[@]+"${on_device[@]}"}
    mark_done "$folder/.ablate.done" "$step"
}

# parse: claims on syntax are decided where it works out
parse() {
    local step
    [[ $TOKENIZER == none ]] || return 0 # the data's words have to be those of the text
    step=$(fingerprint parse "$(files_fingerprint "$output/text/test.$SOURCE")")
    if is_done "$output/.parse.done" "$step" "$output/test.conllu"; then
        say "parses: done before"
        return
    fi
    say "parses of the test set"
    rm -f "$output/test.conllu"
    if fairseq-entmax tag "$output/text/test.$SOURCE" --language "$SOURCE" --output "$output/test.conllu"; then
        mark_done "$output/.parse.done" "$step"
    else
        say "no parses, the reason is above: claims on syntax will not be decided"
    fi
}

take_step() {
    local updates
    case $kind in
    train) train_from_nothing "$@" ;;
    search)
        search "$run" "$1" "$2" "$mapping"
        take_out "$run"
        ;;
    recover) recover "$run" "$1" "$mapping" ;;
    continue) continue_run "$run" "$1" "$mapping" ;;
    scratch)
        updates=$(updates_of "${@:2}")
        train_from_scratch "$run" "$1" "$updates" "$mapping"
        ;;
    pace) pace "$@" ;;
    equaltime) equal_time "$1" ;;
    measure)
        forget_other_code
        evaluate_run "$run" "$mapping"
        analyze
        ;;
    ablate) ablate "$1" ;;
    parse) parse ;;
    *) usage_error "there is no step '$kind'" ;;
    esac
}

require_data "$output"
# In one line, as bash reads a script while it runs it, and this one may be another by then
take_step "$@"; exit
