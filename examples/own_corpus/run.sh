#!/usr/bin/env bash
# From two text files to a report: subwords, training, translations, a table of scores, a report.
#
#   run.sh --source FILE --target FILE [options] [-- options of fairseq-train]
#
# Calls prepare.sh, then train.sh and evaluate.sh for each mapping, then report.sh. Can be stopped and
# run again at any time: it resumes where it stopped.
source "$(dirname "$0")/../lib/recipe.sh"
source "$ROOT/examples/lib/models.sh"

run_all_help() {
    print_head_comment "$0"
    cat <<TEXT

$PREPARE_HELP
$(help_on_models)
  --epochs N, --updates N
                 length of each training (default: $LENGTH epochs)
  --output DIR   where to write (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the project's folder)
  --workers N    processes that tokenise the text (default: one per core)
  --cpu, --gpu   device (default: a GPU if torch finds one, else the CPU)
  --help         this text

Environment: BPE_SIZE, the number of subwords (default: 4000); SIZE, that of the models: small, medium
or base (default: small); SEED (default: 1).
TEXT
}

text=() length=() device=() output=$DEFAULT_OUTPUT
while (($# > 0)); do
    TOOK=2
    if take_models "$1" $# "${2-}"; then
        :
    elif prepare_option "$1" $# "${2-}"; then
        text+=("${@:1:TOOK}")
    else
        case $1 in
        --epochs | --updates) require_value "$1" $# && require_positive_integer "$1" "$2" && length=("$1" "$2") LENGTH_UNIT=${1#--} LENGTH=$2 ;;
        --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") ;;
        --workers) require_value "$1" $# && require_positive_integer "$1" "$2" && text+=("$1" "$2") ;;
        --cpu | --gpu) device=("$1") TOOK=1 ;;
        --help | -h) run_all_help && exit 0 ;;
        --) shift && break ;;
        -*) usage_error "unknown option '$1': options of fairseq-train go after --" ;;
        *) usage_error "unknown argument '$1': name the texts with --source and --target" ;;
        esac
    fi
    shift "$TOOK"
done
settle_models
SCRIPT=prepare settle_dataset "$output"
require_commands python3 fairseq-preprocess fairseq-train fairseq-generate fairseq-entmax sacrebleu
hold_lock "$output"

"$RECIPE/prepare.sh" --output "$output" "${text[@]}"
where=(--output "$output" "${length[@]}" "${device[@]}")
named=()
for one in "${CHOSEN[@]}"; do
    "$RECIPE/train.sh" "${where[@]}" "$one" "$@"
    "$RECIPE/evaluate.sh" "${where[@]}" "$one"
    named+=(--mapping "$one")
done
"$RECIPE/report.sh" "${where[@]}" "${named[@]}"
for one in "${CHOSEN[@]}"; do
    [[ $one != stock ]] || continue # fairseq's own transformer
    run=$output/runs/$(run_name "$one" "$LENGTH" "$LENGTH_UNIT")
    say "alpha of each head of $one ($run/alpha.txt)"
    cat "$run/alpha.txt"
done
