#!/usr/bin/env bash
# Holds trained models that write titles side by side: a table of ROUGE with intervals, what each
# has more than the first, and a report of what every head does while the models write.
#
#   report.sh [options]
#
#   --models LIST  models that evaluate.sh has scored, with commas between them; the first is the
#                  one that others are compared with (default: copy, then all others)
#   --output DIR   where prepare.sh wrote its data; the table goes to DIR/rouge.tsv, the analysis
#                  and the report to DIR/compare/
#   --epochs N     as in train.sh
#   --cpu, --gpu   where to work (default: a GPU where torch finds one, else the CPU)
#   --help         this text
#
# Can be stopped and run again: what is done for the same titles and checkpoints is skipped.
set -euo pipefail
# shellcheck source=examples/lib/recipe.sh
source "$(dirname "$0")/../lib/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "$0")/../lib/run.sh"

OUTPUT=$DEFAULT_OUTPUT device=auto
models=(copy no-copy entmax15 entmax fusedmax sparse-copy-head)
while (($# > 0)); do
    case $1 in
    --models) require_value "$1" $# && IFS=, read -r -a models <<<"$2" && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$(absolute_path "$2") && shift ;;
    --epochs) require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 && shift ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) print_head_comment "$0" && exit 0 ;;
    *) usage_error "unknown option '$1': use --models, --output, --epochs, --cpu, --gpu or --help" ;;
    esac
    shift
done
((${#models[@]} > 0)) || usage_error "option --models got '': give $MODELS_HELP"
for model in "${models[@]}"; do require_model "option --models" "$model"; done

require_commands python3 fairseq-entmax
hold_lock "$OUTPUT"
require_data "$OUTPUT"
canonical_model "${models[0]}" >/dev/null
device=$(choose_device "$device")
WRITING=$OUTPUT

run_folder() { printf '%s\n' "$OUTPUT/runs/$(run_name "$1" "$LENGTH" "$LENGTH_UNIT")"; }

for model in "${models[@]}"; do
    [[ -f $(run_folder "$model")/.scores.done ]] ||
        die "no titles of $model in $(run_folder "$model"): run train.sh and evaluate.sh with it and the same options first"
done

# --- rouge.tsv ---------------------------------------------------------------

# rouge_of MODEL: its rouge.json, compared with the first model where it is another one
rouge_of() {
    local first folder ROUGE compared=()
    first=$(run_folder "${models[0]}") folder=$(run_folder "$1")
    if [[ $first != "$folder" ]]; then compared=(--compare "$folder/test.hyp"); fi
    rouge_options test "$OUTPUT/text"
    write_whole "$folder/rouge.json" fairseq-entmax rouge "$first/test.hyp" --text --json \
        ${compared[@]+"${compared[@]}"} "${ROUGE[@]}"
}

files=() titles=() checkpoints=()
for model in "${models[@]}"; do
    files+=("$(run_folder "$model")/rouge.json")
    titles+=("$(run_folder "$model")/test.hyp")
    checkpoints+=("$(run_folder "$model")/checkpoints/checkpoint_best.pt")
done
step=$(fingerprint rouge "${models[@]}" "$(files_fingerprint "${titles[@]}" "$OUTPUT/text/test.$TARGET" "$TOOLS/rouge_table.py")")
if is_done "$OUTPUT/.rouge.done" "$step" "$OUTPUT/rouge.tsv"; then
    say "ROUGE of ${models[*]}: done before"
else
    say "ROUGE of ${models[*]}"
    rm -f "$OUTPUT/.rouge.done"
    for model in "${models[@]}"; do rouge_of "$model"; done
    write_whole "$OUTPUT/rouge.tsv" python3 "$TOOLS/rouge_table.py" write "${files[@]}" --names "${models[@]}"
    mark_done "$OUTPUT/.rouge.done" "$step"
fi

# --- compare/analysis.json, compare/report.html ------------------------------

analyse() {
    local on_device=()
    if [[ $device == cpu ]]; then on_device=(--cpu); fi
    fairseq-entmax analyze "$OUTPUT/data-bin" --source-lang "$SOURCE" --target-lang "$TARGET" \
        --gen-subset test --of generated --task entmax_summarization "${GENERATION[@]}" --path "$(joined : "${checkpoints[@]}")" \
        --names "$(joined , "${models[@]}")" --output "$OUTPUT/compare" --overwrite \
        --max-tokens 4000 --num-workers 0 ${on_device[@]+"${on_device[@]}"}
    fairseq-entmax report "$OUTPUT/compare/analysis.json" --output "$OUTPUT/compare/report.html" --overwrite
}

step=$(fingerprint report "${models[@]}" "${GENERATION[@]}" "$(files_fingerprint "${checkpoints[@]}" "$OUTPUT"/data-bin/test.*)")
if is_done "$OUTPUT/compare/.done" "$step" "$OUTPUT"/compare/{analysis.json,report.html}; then
    say "report of ${models[*]}: done before"
else
    say "report of ${models[*]}: what every head does while they write the test titles"
    rm -f "$OUTPUT/compare/.done"
    analyse
    mark_done "$OUTPUT/compare/.done" "$step"
fi
say "ROUGE ($OUTPUT/rouge.tsv): ${models[0]} with its interval, others with what they have more"
python3 "$TOOLS/rouge_table.py" show "$OUTPUT/rouge.tsv"
say "report, to open in a browser: $OUTPUT/compare/report.html"
