# evaluate.sh of the recipes for classifiers: classifies the test set, and scores the predictions.

WRITES='test.predictions.jsonl (the prediction for
each example, and the words that <s> attends to in the last layer), scores.txt (accuracy with its interval),
words.txt (the words with most of its attention) and alpha.txt'

source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation

# fairseq logs to standard error whatever it loads
classify() {
    write_atomically "$RUN/test.predictions.jsonl" python3 "$TOOLS/predictions.py" write "$checkpoint" \
        "$OUTPUT/data-bin" --device "$device" 2>"$RUN/classify.log" ||
        failed "$RUN/classify.log" "$?" predictions.py
}

data=$(files_fingerprint "$OUTPUT"/data-bin/{input?,label}/{dict.txt,test.bin} "$TOOLS/predictions.py")
once "classify $run on $device" "$RUN/.classify.done" "$(fingerprint classify "$model" "$data" "$device")" \
    "$RUN/test.predictions.jsonl" -- classify

score() {
    local predictions=$RUN/test.predictions.jsonl labels=$OUTPUT/text/test.label
    write_atomically "$RUN/scores.txt" accuracy_of "$predictions"
    write_atomically "$RUN/words.txt" python3 "$TOOLS/predictions.py" words "$predictions" "$labels"
}

step=$(fingerprint scores "$(files_fingerprint "$RUN/test.predictions.jsonl" "$OUTPUT/text/test.label" "$TOOLS"/{accuracy,predictions}.py)")
once "score $run" "$RUN/.scores.done" "$step" "$RUN"/{scores,words}.txt -- score

end_evaluation "$RUN/scores.txt" "$RUN/words.txt"
