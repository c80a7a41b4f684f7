# evaluate.sh of the recipes for language models: computes the perplexity of the test text.

WRITES='the perplexity in each evaluation of the
recipe (scores.txt, and perplexity.json for programs), the logs of fairseq-eval-lm
(eval.NAME.log), and alpha.txt'

source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation fairseq-eval-lm

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/test.$SOURCE")
logs=() log_files=()
for evaluation in "${EVALUATIONS[@]}"; do
    read -r name options <<<"$evaluation"
    read -r -a options <<<"$options"
    log=$RUN/eval.$name.log
    logs+=("$name=$log") && log_files+=("$log")
    step=$(fingerprint eval-lm "$model" "$data" "$BLOCK_TOKENS" "$MOST_TOKENS" "${options[@]}" "$device")
    # perplexity.py needs the probability of each subword: fairseq's own perplexity is per subword
    once "evaluate $run, $name, on $device: ${options[*]} ($log)" "$RUN/.eval.$name.done" "$step" "$log" -- \
        timed "$name" logged "$log" fairseq-eval-lm "$OUTPUT/data-bin" --user-dir "$user_dir" --task language_modeling \
        --path "$checkpoint" --gen-subset test --tokens-per-sample "$BLOCK_TOKENS" --max-tokens "$MOST_TOKENS" \
        --output-word-probs --log-format none --num-workers 0 --seed 1 "${on_device[@]}" "${options[@]}"
done

step=$(fingerprint perplexity "$data" "$(files_fingerprint "${log_files[@]}" "$TOOLS/perplexity.py")")
once "perplexity of $run" "$RUN/.scores.done" "$step" "$RUN/scores.txt" "$RUN/perplexity.json" -- \
    write_atomically "$RUN/scores.txt" python3 "$TOOLS/perplexity.py" --text "$OUTPUT/text/test.$SOURCE" \
    --data "$OUTPUT/data-bin" --json "$RUN/perplexity.json" "${logs[@]}"

end_evaluation "$RUN/scores.txt"
