# report.sh of recipes that translate: holds trained models side by side.
#
# A dataset.sh says beside what recipe.sh lists:
#
#   MODELS          array: the default of --mappings
#
# shellcheck shell=bash disable=SC2153

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"
# shellcheck source=examples/lib/models.sh
source "$(dirname "${BASH_SOURCE[0]}")/models.sh"

SCRIPT=report

report_help() {
    print_head_comment "$0"
    cat <<TEXT

A table of BLEU and chrF with what each model has more than the first, and how probable so large a
difference is by chance; and a report of what the heads do on the test set.

  report.sh [options]

$(help_on_models)
  --output DIR   where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                 project's folder); the table goes to DIR/scores.tsv, the analysis and the report
                 to DIR/compare/
  $(printf '%-14s' "--$LENGTH_UNIT N") as in train.sh (default: $LENGTH)
  --cpu, --gpu   where to work (default: a GPU where torch finds one, else the CPU)
  --help         this text
$(run_option_help report)
Can be stopped and run again: what is done for the same translations and checkpoints is skipped.
TEXT
}

OUTPUT=$DEFAULT_OUTPUT device=auto
while (($# > 0)); do
    TOOK=2
    if take_models "$1" $# "${2-}" || run_option report "$1" $# "${2-}"; then
        shift "$TOOK"
        continue
    fi
    case $1 in
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$2 && shift ;;
    "--$LENGTH_UNIT") require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 && shift ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) report_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --mappings, --mapping, --output, --$LENGTH_UNIT, --cpu, --gpu or --help" ;;
    esac
    shift
done
OUTPUT=$(absolute_path "$OUTPUT")
settle_dataset "$OUTPUT"
settle_models

require_commands python3 fairseq-entmax sacrebleu
hold_lock "$OUTPUT"
require_data "$OUTPUT"
require_models
device=$(choose_device "$device")
WRITING=$OUTPUT

runs=() names=() checkpoints=()
for model in "${CHOSEN[@]}"; do
    run=$OUTPUT/runs/$(run_name "$model" "$LENGTH" "$LENGTH_UNIT")
    [[ -f $run/.scores.done && -f $run/scores.txt ]] ||
        die "no scores of $model in $run: run train.sh and evaluate.sh with it and the same options first"
    runs+=("$run") names+=("$(mapping_name "$model")") checkpoints+=("$run/checkpoints/checkpoint_best.pt")
done

# --- scores.tsv --------------------------------------------------------------

step=$(fingerprint scores "${CHOSEN[@]}" "$(files_fingerprint "${runs[@]/%//test.hyp}" "${runs[@]/%//scores.txt}" "$TOOLS/side_by_side.py")")
if is_done "$OUTPUT/.scores.done" "$step" "$OUTPUT/scores.tsv"; then
    say "scores of ${CHOSEN[*]}: done before"
else
    say "scores of ${CHOSEN[*]}"
    rm -f "$OUTPUT/.scores.done"
    write_whole "$OUTPUT/scores.tsv" python3 "$TOOLS/side_by_side.py" write "${runs[@]}" --names "${CHOSEN[@]}"
    mark_done "$OUTPUT/.scores.done" "$step"
fi

# --- compare/analysis.json, compare/report.html ------------------------------

analyse() {
    local on_device=()
    if [[ $device == cpu ]]; then on_device=(--cpu); fi
    fairseq-entmax analyze "$OUTPUT/data-bin" "${TASK[@]}" --gen-subset test \
        --path "$(joined : "${checkpoints[@]}")" --names "$(joined , "${names[@]}")" \
        --output "$OUTPUT/compare" --overwrite --max-tokens 4000 --num-workers 0 ${on_device[@]+"${on_device[@]}"}
    fairseq-entmax report "$OUTPUT/compare/analysis.json" --output "$OUTPUT/compare/report.html" --overwrite
}

step=$(fingerprint report "${names[@]}" "$(files_fingerprint "${checkpoints[@]}" "$OUTPUT"/data-bin/test.*)")
if is_done "$OUTPUT/compare/.done" "$step" "$OUTPUT"/compare/{analysis.json,report.html}; then
    say "report of ${CHOSEN[*]}: done before"
else
    say "report of ${CHOSEN[*]}: what every head does on the test set"
    rm -f "$OUTPUT/compare/.done"
    analyse
    mark_done "$OUTPUT/compare/.done" "$step"
fi
say "scores ($OUTPUT/scores.tsv): change is what a model has more BLEU than ${CHOSEN[0]}, p how probable so large a one is by chance (paired bootstrap)"
python3 "$TOOLS/side_by_side.py" show "$OUTPUT/scores.tsv"
say "report, to open in a browser: $OUTPUT/compare/report.html"
