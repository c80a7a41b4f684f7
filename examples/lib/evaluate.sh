# evaluate.sh of recipes that translate: translates the test set and scores the translations.

WRITES='test.hyp, test.ref, scores.txt and alpha.txt'

source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation fairseq-generate sacrebleu

# What translations are made of: words, or the text as it is
words=test.hyp
if [[ $WORDS == tok || $REFERENCE != test ]]; then words=test.hyp.tok; fi

translate() {
    generate test translation 4000
    write_whole "$RUN/$words" python3 "$TOOLS/translations.py" "$RUN/generate.tmp/generate-test.txt" "$OUTPUT/text/test.$TARGET"
    if [[ $words != test.hyp ]]; then write_whole "$RUN/test.hyp" python3 "$TOOLS/words.py" join "$TARGET" <"$RUN/$words"; fi
    write_whole "$RUN/test.ref" cat "$OUTPUT/text/$REFERENCE.$TARGET"
    rm -rf "$RUN/generate.tmp"
}

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/$REFERENCE.$TARGET")
step=$(fingerprint translate "$model" "$data" "${GENERATION[@]}" "$device")
once "translate $run on $device, ${GENERATION[*]} ($RUN/generate.log)" \
    "$RUN/.translate.done" "$step" "$RUN/test.hyp" "$RUN/test.ref" -- translate

# Each line says itself when it fails: bash does not stop in a function whose status is looked at
score() {
    sacrebleu "$RUN/test.ref" --input "$RUN/test.hyp" --metrics bleu chrf --format text --width 2 || return
    if [[ $words != test.hyp ]]; then
        # As in the papers: words as the corpus was cut into, so only comparable where the
        # same tokeniser cut the reference
        sacrebleu "$OUTPUT/$WORDS/test.$TARGET" --input "$RUN/$words" --metrics bleu \
            --tokenize none --force --format text --width 2 || return
    fi
}

references=("$RUN/test.hyp" "$RUN/test.ref")
if [[ $words != test.hyp ]]; then references+=("$RUN/$words" "$OUTPUT/$WORDS/test.$TARGET"); fi
once "score $run" "$RUN/.scores.done" "$(fingerprint scores "$(files_fingerprint "${references[@]}")")" \
    "$RUN/scores.txt" -- write_whole "$RUN/scores.txt" score

end_evaluation "$RUN/scores.txt"
