# report.sh of every recipe that has one: compares trained models.
#
# A dataset.sh sets, besides what recipe.sh lists (all but MODELS have a default for translation):
#
#   MODELS           array: the default of --mappings, of which those that are scored are taken
#   TABLE            the name of the table, without .tsv
#   TABLE_HELP       what the table shows, for --help and for the line above it
#   TABLE_OF         the file of each run that the table is made from
#   TABLE_TOOL       the program that makes the table
#   write_table      function: prints the table of the models in CHOSEN, whose runs are in RUNS
#   analysis_options function: sets ANALYSIS, options of fairseq-entmax analyze

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"
source "$(dirname "${BASH_SOURCE[0]}")/models.sh"

WHERE_SCORED='; only those that have been scored'
TABLE=${TABLE-scores} TABLE_OF=${TABLE_OF-test.hyp} TABLE_TOOL=${TABLE_TOOL-side_by_side.py}
TABLE_HELP=${TABLE_HELP-'BLEU and chrF; change is the difference in BLEU from the first model, p the probability of so large a difference by chance (approximate randomization)'}
declare -F write_table >/dev/null ||
    write_table() { python3 "$TOOLS/side_by_side.py" "${RUNS[@]}" --names "${CHOSEN[@]}" --target "$TARGET"; }
declare -F analysis_options >/dev/null || analysis_options() { ANALYSIS=("${TASK[@]}"); }

report_help() {
    print_head_comment "$RECIPE/dataset.sh"
    cat <<TEXT

Makes a table, and a report of what the heads do on the test set. The table shows
$TABLE_HELP.

  report.sh [options]

$(help_on_models)
  --output DIR   where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                 project's folder); the table goes to DIR/$TABLE.tsv, the analysis and the report
                 to DIR/compare/
$(help_on_length "as in train.sh")
  --cpu, --gpu   device (default: a GPU if torch finds one, else the CPU)
  --help         this text

Can be stopped and run again: steps that are finished for the same models are skipped.
TEXT
}

OUTPUT=$DEFAULT_OUTPUT device=auto
while (($# > 0)); do
    if take_models "$1" $# "${2-}"; then shift 2 && continue; fi
    case $1 in
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$(absolute_path "$2") && shift ;;
    --epochs | --updates) require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 LENGTH_UNIT=${1#--} && shift ;;
    --cpu | --gpu) device=${1#--} ;;
    --help | -h) report_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --mappings, --mapping, --output, --$LENGTH_UNIT, --cpu, --gpu or --help" ;;
    esac
    shift
done
settle_dataset "$OUTPUT"
named=${#CHOSEN[@]}
settle_models

require_commands python3 fairseq-entmax
require_data "$OUTPUT"
hold_lock "$OUTPUT"
canonical_model "${CHOSEN[0]}" >/dev/null
device=$(choose_device "$device")

# Models that the user names must all be scored; of the default, those that are scored are taken
scored=() left_out=() RUNS=() names=()
for model in "${CHOSEN[@]}"; do
    run=$OUTPUT/runs/$(run_name "$model" "$LENGTH" "$LENGTH_UNIT")
    if [[ -f $run/.scores.done ]] && has_own_data "$run"; then
        scored+=("$model") RUNS+=("$run") names+=("$(mapping_name "$model")")
    elif ((named > 0)); then
        die "no scores of $model on these data in $run: run train.sh and evaluate.sh for it with the same options first"
    else
        left_out+=("$model")
    fi
done
((${#scored[@]} > 0)) ||
    die "no model trained for $LENGTH $LENGTH_UNIT in $OUTPUT/runs has been scored: run train.sh and evaluate.sh for some of $(joined , "${CHOSEN[@]}") with the same options first"
((${#left_out[@]} == 0)) || say "left out, not scored by evaluate.sh at $LENGTH $LENGTH_UNIT: $(joined , "${left_out[@]}")"
CHOSEN=("${scored[@]}")
checkpoints=("${RUNS[@]/%//checkpoints/checkpoint_best.pt}")

step=$(fingerprint "$TABLE" "${CHOSEN[@]}" "$(files_fingerprint "${RUNS[@]/%//$TABLE_OF}" "${RUNS[@]/%//scores.txt}" "$TOOLS/$TABLE_TOOL")")
once "$TABLE of ${CHOSEN[*]}" "$OUTPUT/.$TABLE.done" "$step" "$OUTPUT/$TABLE.tsv" -- \
    write_atomically "$OUTPUT/$TABLE.tsv" write_table

analyse() {
    local on_device=()
    if [[ $device == cpu ]]; then on_device=(--cpu); fi
    fairseq-entmax analyze "$OUTPUT/data-bin" "${ANALYSIS[@]}" --gen-subset test \
        --path "$(joined : "${checkpoints[@]}")" --names "$(joined , "${names[@]}")" \
        --output "$OUTPUT/compare" --overwrite --max-tokens 4000 --num-workers 0 "${on_device[@]}"
    fairseq-entmax report "$OUTPUT/compare/analysis.json" --output "$OUTPUT/compare/report.html" --overwrite
}

analysis_options
binary_files
step=$(fingerprint report "${names[@]}" "${ANALYSIS[@]}" "$(files_fingerprint "${checkpoints[@]}" "${BINARY[@]}")")
once "report of ${CHOSEN[*]}: what every head does on the test set" \
    "$OUTPUT/compare/.done" "$step" "$OUTPUT"/compare/{analysis.json,report.html} -- analyse
say "$TABLE ($OUTPUT/$TABLE.tsv): $TABLE_HELP"
python3 "$TOOLS/tables.py" "$OUTPUT/$TABLE.tsv"
say "report, to open in a browser: $OUTPUT/compare/report.html"
