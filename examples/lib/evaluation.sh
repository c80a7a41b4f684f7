# What every evaluate.sh shares: options and help, the trained model that they name, the output of
# fairseq-generate for a test set, and the table of α at the end.
#
# Before it sources this, a script sets WRITES, which tells --help what the script writes. After it, the
# script calls begin_evaluation and end_evaluation.

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

EXTRA_OPTIONS=''

run_help() {
    print_head_comment "$RECIPE/dataset.sh"
    cat <<TEXT

Applies a trained model to the test set, and scores it.

  evaluate.sh [options] MAPPING

$(help_on_runs)

Name the run exactly as for train.sh. Writes $WRITES to the run's folder.
Can be run again: steps that are finished for the same checkpoint are skipped.
TEXT
}

parse_run_options "$@"
((${#REST[@]} == 0)) || usage_error "unknown argument '${REST[0]}' after the mapping: leave it out"

# begin_evaluation COMMAND...: requires the commands, and sets checkpoint, model (its checksum), device,
# on_device, user_dir and run
begin_evaluation() {
    require_commands python3 fairseq-entmax "$@"
    checkpoint=$RUN/checkpoints/checkpoint_best.pt
    [[ -f $RUN/.train.done && -f $checkpoint ]] ||
        die "no finished training in $RUN: run train.sh with the same options first"
    hold_lock "$OUTPUT"
    has_own_data "$RUN" ||
        die "the data in $OUTPUT/data-bin are not those that ${RUN##*/} was trained on: prepare them as before, or train again"
    model=$(sha256_of "$checkpoint")
    device=$(choose_device "$DEVICE")
    on_device=(--distributed-world-size 1)
    if [[ $device == cpu ]]; then on_device+=(--cpu); fi
    user_dir=$(fairseq-entmax user-dir)
    run=${RUN##*/}
}

# generate SUBSET TASK TOKENS: writes $RUN/generate.tmp/generate-SUBSET.txt, in batches of TOKENS tokens
generate() {
    rm -rf "$RUN/generate.tmp" "$RUN/generate.log"
    # Multiple 1: with its default of 8, current fairseq leaves out up to 7 test sentences.
    run_with_progress "$RUN/generate.log" batches 1 fairseq-generate "$OUTPUT/data-bin" --user-dir "$user_dir" \
        --task "$2" --source-lang "$SOURCE" --target-lang "$TARGET" --gen-subset "$1" \
        --path "$checkpoint" "${GENERATION[@]}" "${REMOVE_BPE[@]}" \
        --max-tokens "$3" --required-batch-size-multiple 1 --num-workers 0 --seed 1 "${on_device[@]}" \
        --log-format simple --log-interval 1 --results-path "$RUN/generate.tmp"
}

# end_evaluation FILE...: writes alpha.txt, and prints the files
end_evaluation() {
    if [[ $MAPPING != stock ]]; then # fairseq's own transformer
        once "alpha table $run" "$RUN/.alpha.done" "$(fingerprint alpha "$model")" "$RUN/alpha.txt" -- \
            write_atomically "$RUN/alpha.txt" fairseq-entmax alpha "$checkpoint"
    fi
    cat "$@"
    if [[ -f $RECIPE/published.txt ]]; then cat "$RECIPE/published.txt"; fi
    say "results: $RUN"
}
