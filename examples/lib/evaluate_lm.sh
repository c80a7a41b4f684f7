# evaluate.sh of the recipes for language models: the perplexity of the test text, and samples.
#
# shellcheck shell=bash

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
# shellcheck source=examples/lib/run.sh
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

EXTRA_OPTIONS=''

run_help() {
    print_head_comment "$0"
    cat <<TEXT

  evaluate.sh [options] MAPPING

$(help_on_runs)

Name the run exactly as for train.sh. Writes to the run's folder the perplexity in each of the
recipe's evaluations (scores.txt, and perplexity.json for programs), what fairseq-eval-lm logged
(eval.NAME.log), how the model goes on with the first words of some test lines (samples.txt), and
alpha.txt. Can be run again: what is done for the same checkpoint is skipped.
TEXT
}

parse_run_options "$@"
((${#REST[@]} == 0)) || usage_error "unknown argument '${REST[0]}' after the mapping: leave it out"

require_commands python3 fairseq-eval-lm fairseq-interactive fairseq-entmax
hold_lock "$OUTPUT"
checkpoint=$RUN/checkpoints/checkpoint_best.pt
[[ -f $RUN/.train.done && -f $checkpoint ]] ||
    die "no finished training in $RUN: run train.sh with the same options first"
device=$(choose_device "$DEVICE")
run=$(basename "$RUN")
WRITING=$RUN

on_device=(--distributed-world-size 1)
if [[ $device == cpu ]]; then on_device+=(--cpu); fi
user_dir=$(fairseq-entmax user-dir)
model=$(sha256_of "$checkpoint")
data=$(files_fingerprint "$OUTPUT"/data-bin/dict.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/test.$SOURCE")

# fairseq COMMAND LOG OPTION...: standard input goes to the command
fairseq() {
    local command=$1 log=$2
    shift 2
    "$command" "$OUTPUT/data-bin" --user-dir "$user_dir" --task language_modeling --path "$checkpoint" \
        --num-workers 0 --seed 1 "${on_device[@]}" "$@" >"$log.tmp" 2>&1 || {
        tail -n 30 "$log.tmp" >&2
        mv -f "$log.tmp" "$log"
        die "$command failed: its last messages are above, all of them in $log"
    }
    mv -f "$log.tmp" "$log"
}

# --- eval.NAME.log -----------------------------------------------------------

logs=() log_files=()
for evaluation in "${EVALUATIONS[@]}"; do
    read -r name options <<<"$evaluation"
    read -r -a options <<<"$options"
    log=$RUN/eval.$name.log
    logs+=("$name=$log") && log_files+=("$log")
    step=$(fingerprint eval-lm "$model" "$data" "$BLOCK_TOKENS" "$MOST_TOKENS" "${options[@]}" "$device")
    if is_done "$RUN/.eval.$name.done" "$step" "$log"; then
        say "evaluate $run, $name: done before"
        continue
    fi
    say "evaluate $run, $name, on $device: ${options[*]} ($log)"
    rm -f "$RUN/.eval.$name.done"
    # The probability of each subword: the log's own perplexity is that of subwords
    fairseq fairseq-eval-lm "$log" --gen-subset test --tokens-per-sample "$BLOCK_TOKENS" \
        --max-tokens "$MOST_TOKENS" --output-word-probs --log-format none "${options[@]}"
    mark_done "$RUN/.eval.$name.done" "$step"
done

# --- scores.txt, perplexity.json ---------------------------------------------

step=$(fingerprint perplexity "$data" "$(files_fingerprint "${log_files[@]}" "$TOOLS/perplexity.py")")
if is_done "$RUN/.scores.done" "$step" "$RUN/scores.txt" "$RUN/perplexity.json"; then
    say "perplexity of $run: done before"
else
    say "perplexity of $run"
    rm -f "$RUN/.scores.done"
    write_whole "$RUN/scores.txt" python3 "$TOOLS/perplexity.py" --text "$OUTPUT/text/test.$SOURCE" \
        --data "$OUTPUT/data-bin" --json "$RUN/perplexity.json" "${logs[@]}"
    mark_done "$RUN/.scores.done" "$step"
fi

# --- samples.txt -------------------------------------------------------------

# prompts: how some lines of the test text begin, as the model knows the words
prompts() {
    awk -v words="$PROMPT_WORDS" -v most=5 'NF > 2 * words { line[++lines] = $0 }
        END { for (i = 0; i < most && i < lines; i++) {
            count = split(line[int(i * lines / most) + 1], word, " "); text = word[1]
            for (j = 2; j <= words && j <= count; j++) text = text " " word[j]
            print text
        } }' "$OUTPUT/$PIECES/test.$SOURCE"
}

sample() {
    fairseq fairseq-interactive "$RUN/samples.log" "${GENERATION[@]}" --buffer-size 8 --max-tokens 4096 \
        --max-len-b 60 --skip-invalid-size-inputs-valid-test ${REMOVE_BPE[@]+"${REMOVE_BPE[@]}"} < <(prompts)
    awk -F '\t' '/^D-[0-9]+\t/ { print $3 }' "$RUN/samples.log"
}

step=$(fingerprint samples "$model" "$data" "${GENERATION[@]}" "$PROMPT_WORDS" "$device")
if is_done "$RUN/.samples.done" "$step" "$RUN/samples.txt"; then
    say "samples of $run: done before"
else
    say "samples of $run: ${GENERATION[*]}"
    rm -f "$RUN/.samples.done"
    write_whole "$RUN/samples.txt" sample
    mark_done "$RUN/.samples.done" "$step"
fi

# --- alpha.txt ---------------------------------------------------------------

if [[ $MAPPING != stock ]]; then write_alpha_table "$checkpoint"; fi

cat "$RUN/scores.txt"
if [[ -f $RECIPE/published.txt ]]; then cat "$RECIPE/published.txt"; fi
say "results: $RUN"
