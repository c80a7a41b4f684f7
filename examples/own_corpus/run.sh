#!/usr/bin/env bash
# From two text files to BLEU: subwords, training, translations, scores side by side, a report.
#
#   run.sh --source FILE --target FILE [options] [-- options of fairseq-train]
#
# Calls prepare.sh, then train.sh and evaluate.sh for each mapping, and report.sh; takes the options
# of all of them, below. Can be stopped and run again at any time: it goes on where it stopped.
recipe=$(cd "$(dirname "$0")" && pwd)
source "$recipe/../lib/recipe.sh"
source "$recipe/../lib/models.sh"

run_all_help() {
    print_head_comment "$0"
    cat <<TEXT

$(help_on_models)
  --output DIR   where to write (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the project's folder)
  --cpu, --gpu   where to work (default: a GPU where torch finds one, else the CPU)
  --no-report    scores alone, no report of what the heads do
  --help         this text

The text (prepare.sh):

$PREPARE_HELP  --workers N    processes that cut the text (default: one for each core)
$(run_option_help train)
  --processes N, --most-tokens N, as for train.sh

The search (evaluate.sh):
$(run_option_help evaluate | grep -v -e '--epochs')
TEXT
}

# Every option is checked here, before hours of work, by what the steps check it with
text=() model=() search=() length=() report=true device=() output=$DEFAULT_OUTPUT
while (($# > 0)); do
    TOOK=2
    if take_models "$1" $# "${2-}"; then
        :
    elif prepare_option "$1" $# "${2-}"; then
        text+=("${@:1:TOOK}")
    elif run_option report "$1" $# "${2-}"; then
        length+=("${@:1:TOOK}")
    elif run_option train "$1" $# "${2-}"; then
        model+=("${@:1:TOOK}")
    elif run_option evaluate "$1" $# "${2-}"; then
        search+=("${@:1:TOOK}")
    else
        case $1 in
        --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$2 ;;
        --workers) require_value "$1" $# && require_positive_integer "$1" "$2" && text+=("$1" "$2") ;;
        --processes | --most-tokens) require_value "$1" $# && require_positive_integer "$1" "$2" && model+=("$1" "$2") ;;
        --cpu | --gpu) device=("$1") TOOK=1 ;;
        --no-report) report=false TOOK=1 ;;
        --help | -h) run_all_help && exit 0 ;;
        --) shift && break ;;
        -*) usage_error "unknown option '$1': options of fairseq-train stand behind --" ;;
        *) usage_error "unknown argument '$1': name the texts by --source and --target" ;;
        esac
    fi
    shift "$TOOK"
done
output=$(absolute_path "$output")
settle_models
SCRIPT=prepare settle_dataset "$output"
SCRIPT=train settle_dataset "$output"
require_commands python3 fairseq-preprocess fairseq-train fairseq-generate fairseq-entmax sacrebleu
hold_lock "$output"
first=${CHOSEN[0]}

took=()
# timed WHAT COMMAND...
timed() {
    local what=$1 before=$SECONDS
    shift
    "$@" || exit
    took+=("$what"$'\t'"$(clock $((SECONDS - before)))"$'\t'"$(clock "$SECONDS")")
    say "$what: took $(clock $((SECONDS - before))), $(clock "$SECONDS") since the start"
}

clock() { printf '%d:%02d:%02d\n' $(($1 / 3600)) $(($1 / 60 % 60)) $(($1 % 60)); }

timed "text" "$recipe/prepare.sh" --output "$output" "${text[@]}"
where=(--output "$output" ${length[@]+"${length[@]}"} ${device[@]+"${device[@]}"})
for one in "${CHOSEN[@]}"; do
    timed "train $one" "$recipe/train.sh" "${where[@]}" ${model[@]+"${model[@]}"} "$one" "$@"
    timed "evaluate $one" "$recipe/evaluate.sh" "${where[@]}" ${search[@]+"${search[@]}"} "$one"
    if [[ $one == "$first" ]]; then say "the first BLEU was there after $(clock "$SECONDS")"; fi
done
if $report; then
    chosen=()
    for one in "${CHOSEN[@]}"; do chosen+=(--mapping "$one"); done
    timed "scores and report" "$recipe/report.sh" "${where[@]}" "${chosen[@]}"
fi
for one in "${CHOSEN[@]}"; do
    # stock is fairseq's own transformer
    [[ $one != stock ]] || continue
    run=$output/runs/$(run_name "$one" "$LENGTH" "$LENGTH_UNIT")
    say "alpha of each head of $one ($run/alpha.txt)"
    cat "$run/alpha.txt"
done
say "time of each step, and since the start"
printf '%s\n' "${took[@]}" | awk -F '\t' '{ printf "%-32s %9s %9s\n", $1, $2, $3 }'
