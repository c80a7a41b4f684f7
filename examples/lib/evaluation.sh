# What every evaluate.sh begins with: its options and its help, and the trained model that they name.
#
# Who sources it defines evaluate_writes before, which prints what the script writes, for --help; and calls
# begin_evaluation behind it.
#
# shellcheck shell=bash disable=SC2034

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

SCRIPT=evaluate
EXTRA_OPTIONS=''

run_help() {
    print_head_comment "$0"
    cat <<TEXT

  evaluate.sh [options] MAPPING

$(help_on_runs)

Name the run exactly as for train.sh. $(evaluate_writes)
Can be run again: what is done for the same checkpoint is skipped.
TEXT
}

parse_run_options "$@"
((${#REST[@]} == 0)) || usage_error "unknown argument '${REST[0]}' after the mapping: leave it out"

# begin_evaluation COMMAND...: sets checkpoint, device and run; the commands have to be there
begin_evaluation() {
    require_commands python3 "$@"
    hold_lock "$OUTPUT"
    checkpoint=$RUN/checkpoints/checkpoint_best.pt
    [[ -f $RUN/.train.done && -f $checkpoint ]] ||
        die "no finished training in $RUN: run train.sh with the same options first"
    device=$(choose_device "$DEVICE")
    run=$(basename "$RUN")
    WRITING=$RUN
}
