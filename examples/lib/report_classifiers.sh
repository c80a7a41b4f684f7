# report.sh of the recipes for classifiers: holds trained models side by side.
#
# A dataset.sh says beside what classifiers.sh lists:
#
#   MODELS          array: the default of --models
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
                 one that others are compared with (default: ${MODELS[*]})
  --output DIR   where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                 project's folder); the table goes to DIR/accuracy.tsv, the analysis and the report
                 to DIR/compare/
  $(printf '%-14s' "--$LENGTH_UNIT N") as in train.sh (default: $LENGTH)
  --cpu, --gpu   where to work (default: a GPU where torch finds one, else the CPU)
  --help         this text

Can be stopped and run again: what is done for the same predictions and checkpoints is skipped.
TEXT
}

OUTPUT=$DEFAULT_OUTPUT device=auto
models=("${MODELS[@]}")
while (($# > 0)); do
    case $1 in
    --models) require_value "$1" $# && IFS=, read -r -a models <<<"$2" && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$(absolute_path "$2") && shift ;;
    "--$LENGTH_UNIT") require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 && shift ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) report_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --models, --output, --$LENGTH_UNIT, --cpu, --gpu or --help" ;;
    esac
    shift
done
((${#models[@]} > 0)) || usage_error "option --models got '': give models such as softmax,fusedmax"
for model in "${models[@]}"; do
    require_mapping "option --models" "$model"
    require_model "option --models" "$model"
done

require_commands python3 fairseq-entmax
hold_lock "$OUTPUT"
require_data "$OUTPUT"
device=$(choose_device "$device")
WRITING=$OUTPUT

predictions=() checkpoints=()
for model in "${models[@]}"; do
    folder=$OUTPUT/runs/$(run_name "$model" "$LENGTH" "$LENGTH_UNIT")
    [[ -f $folder/.scores.done ]] ||
        die "no scores of $model in $folder: run train.sh and evaluate.sh with it and the same options first"
    predictions+=("$folder/test.predictions.jsonl")
    checkpoints+=("$folder/checkpoints/checkpoint_best.pt")
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

# joined SEPARATOR WORD...
joined() {
    local IFS=$1
    shift
    printf '%s\n' "$*"
}

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
