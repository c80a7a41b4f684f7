# evaluate.sh of the recipes for language models: the perplexity of the test text, and samples.

evaluate_writes() {
    cat <<TEXT
Writes to the run's folder the perplexity in each of the
recipe's evaluations (scores.txt, and perplexity.json for programs), what fairseq-eval-lm logged
(eval.NAME.log), how the model goes on with the first words of some test lines (samples.txt), and
alpha.txt.
TEXT
}

source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation fairseq-eval-lm fairseq-interactive

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/test.$SOURCE")

# fairseq COMMAND LOG OPTION...: standard input goes to the command
fairseq() {
    logged "$2" "$1" "$OUTPUT/data-bin" --user-dir "$user_dir" --task language_modeling --path "$checkpoint" \
        --num-workers 0 --seed 1 "${on_device[@]}" "${@:3}"
}

# --- eval.NAME.log -----------------------------------------------------------

logs=() log_files=()
for evaluation in "${EVALUATIONS[@]}"; do
    read -r name options <<<"$evaluation"
    read -r -a options <<<"$options"
    log=$RUN/eval.$name.log
    logs+=("$name=$log") && log_files+=("$log")
    step=$(fingerprint eval-lm "$model" "$data" "$BLOCK_TOKENS" "$MOST_TOKENS" "${options[@]}" "$device")
    # The probability of each subword: the log's own perplexity is that of subwords
    once "evaluate $run, $name, on $device: ${options[*]} ($log)" "$RUN/.eval.$name.done" "$step" "$log" -- \
        fairseq fairseq-eval-lm "$log" --gen-subset test --tokens-per-sample "$BLOCK_TOKENS" \
        --max-tokens "$MOST_TOKENS" --output-word-probs --log-format none "${options[@]}"
done

# --- scores.txt, perplexity.json ---------------------------------------------

step=$(fingerprint perplexity "$data" "$(files_fingerprint "${log_files[@]}" "$TOOLS/perplexity.py")")
once "perplexity of $run" "$RUN/.scores.done" "$step" "$RUN/scores.txt" "$RUN/perplexity.json" -- \
    write_whole "$RUN/scores.txt" python3 "$TOOLS/perplexity.py" --text "$OUTPUT/text/test.$SOURCE" \
    --data "$OUTPUT/data-bin" --json "$RUN/perplexity.json" "${logs[@]}"

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
once "samples of $run: ${GENERATION[*]}" "$RUN/.samples.done" "$step" "$RUN/samples.txt" -- \
    write_whole "$RUN/samples.txt" sample

end_evaluation "$RUN/scores.txt"
