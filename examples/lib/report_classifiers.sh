# report.sh of the recipes for classifiers: holds trained models side by side.
#
# A dataset.sh says beside what classifiers.sh lists:
#
#   MODELS          array: the default of --models, as far as they are scored
#
# shellcheck shell=bash disable=SC2153

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

report_help() {
    print_head_comment "$0"
    cat <<TEXT

A table of accuracy with intervals, beside the commonest label and a naive Bayes classifier, and what
each model has more than the first; and a report of what the heads do, and which words attention
selects.

  report.sh [options]

  --models LIST  models that evaluate.sh has scored, with commas between them; the first is the
                 one that others are compared with (default: those of
                 $(joined , "${MODELS[@]}")
                 that are scored)
  --output DIR   where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                 project's folder); the table goes to DIR/accuracy.tsv, the analysis and the report
                 to DIR/compare/
  $(printf '%-14s' "--$LENGTH_UNIT N") as in train.sh (default: $LENGTH)
  --cpu, --gpu   where to work (default: a GPU where torch finds one, else the CPU)
  --help         this text

Can be stopped and run again: what is done for the same predictions and checkpoints is skipped.
TEXT
}

# read_models LIST: sets models
read_models() {
    local suggested
    read -r -a models <<<"${1//,/ }"
    ((${#models[@]} > 0)) || usage_error "option --models got '$1': give models such as softmax,fusedmax"
    suggested=$(joined , "${models[@]}")
    [[ $1 != *[[:space:]]* ]] ||
        usage_error "option --models got '$1': put commas between the models, and no spaces: $suggested"
    IFS=, read -r -a models <<<"$1"
}

OUTPUT=$DEFAULT_OUTPUT device=auto
models=("${MODELS[@]}") chosen=''
while (($# > 0)); do
    case $1 in
    --models) require_value "$1" $# && chosen=$2 && read_models "$2" && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$(absolute_path "$2") && shift ;;
    "--$LENGTH_UNIT") require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 && shift ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) report_help && exit 0 ;;
    [!-]*) usage_error "unknown argument '$1': leave it out, or put commas between the models of --models, such as $(joined , "${models[@]:0:1}" "$1")" ;;
    *) usage_error "unknown option '$1': use --models, --output, --$LENGTH_UNIT, --cpu, --gpu or --help" ;;
    esac
    shift
done
for model in "${models[@]}"; do
    require_mapping "option --models" "$model"
    require_model "option --models" "$model"
done

require_commands python3 fairseq-entmax
hold_lock "$OUTPUT"
require_data "$OUTPUT"
device=$(choose_device "$device")
WRITING=$OUTPUT

run_folder() { printf '%s\n' "$OUTPUT/runs/$(run_name "$1" "$LENGTH" "$LENGTH_UNIT")"; }
is_scored() { [[ -f $(run_folder "$1")/.scores.done ]]; }

# Who names models wants all of them; else those that are there are taken
scored=() untrained=() unscored=()
for model in "${models[@]}"; do
    if is_scored "$model"; then
        scored+=("$model")
    elif [[ -n $chosen ]]; then
        die "no scores of $model in $(run_folder "$model"): run train.sh and evaluate.sh with it and the same options first"
    elif [[ -f $(run_folder "$model")/.train.done ]]; then
        unscored+=("$model")
    else
        untrained+=("$model")
    fi
done
((${#scored[@]} > 0)) ||
    die "no model of $LENGTH $LENGTH_UNIT in $OUTPUT/runs is scored: run train.sh and evaluate.sh with $(joined , "${models[@]}") or some of them, and the same options, first"
((${#untrained[@]} == 0)) || say "left out, as not trained for $LENGTH $LENGTH_UNIT: $(joined , "${untrained[@]}")"
((${#unscored[@]} == 0)) || say "left out, as trained but not scored by evaluate.sh: $(joined , "${unscored[@]}")"
models=("${scored[@]}")

predictions=() checkpoints=()
for model in "${models[@]}"; do
    predictions+=("$(run_folder "$model")/test.predictions.jsonl")
    checkpoints+=("$(run_folder "$model")/checkpoints/checkpoint_best.pt")
done

# --- accuracy.tsv ------------------------------------------------------------

groups=()
if [[ -f $OUTPUT/text/test.group ]]; then groups=(--groups "$OUTPUT/text/test.group"); fi
step=$(fingerprint accuracy "${models[@]}" "$(files_fingerprint "${predictions[@]}" "$TOOLS"/{accuracy,naive_bayes}.py)")
if is_done "$OUTPUT/.accuracy.done" "$step" "$OUTPUT/accuracy.tsv"; then
    say "accuracy of ${models[*]}: done before"
else
    say "accuracy of ${models[*]}"
    rm -f "$OUTPUT/.accuracy.done"
    write_whole "$OUTPUT/accuracy.tsv" python3 "$TOOLS/accuracy.py" write "${predictions[@]}" --names "${models[@]}" \
        --words "$OUTPUT/$WORDS" --inputs "${INPUTS[@]}" --train-labels "$OUTPUT/text/train.label" \
        --labels "$OUTPUT/text/test.label" ${groups[@]+"${groups[@]}"}
    mark_done "$OUTPUT/.accuracy.done" "$step"
fi

# --- compare/analysis.json, compare/report.html ------------------------------

analyse() {
    local on_device=()
    if [[ $device == cpu ]]; then on_device=(--cpu); fi
    fairseq-entmax analyze "$OUTPUT/data-bin" "${TASK[@]}" --num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")" \
        --gen-subset test --path "$(joined : "${checkpoints[@]}")" --names "$(joined , "${models[@]//:/-}")" \
        --output "$OUTPUT/compare" --overwrite --max-tokens 4000 --num-workers 0 ${on_device[@]+"${on_device[@]}"}
    fairseq-entmax report "$OUTPUT/compare/analysis.json" --output "$OUTPUT/compare/report.html" --overwrite
}

binary_files
step=$(fingerprint report "${models[@]}" "$(files_fingerprint "${checkpoints[@]}" "${BINARY[@]}")")
if is_done "$OUTPUT/compare/.done" "$step" "$OUTPUT"/compare/{analysis.json,report.html}; then
    say "report of ${models[*]}: done before"
else
    say "report of ${models[*]}: what every head does, and the words that are selected"
    rm -f "$OUTPUT/compare/.done"
    analyse
    mark_done "$OUTPUT/compare/.done" "$step"
fi
say "accuracy ($OUTPUT/accuracy.tsv): change is what a model has more than ${models[0]}"
python3 "$TOOLS/accuracy.py" show "$OUTPUT/accuracy.tsv"
say "report, to open in a browser: $OUTPUT/compare/report.html"
