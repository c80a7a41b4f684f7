# evaluate.sh of recipes that translate: translates the test set and scores the translations.

WRITES='test.hyp, test.ref, scores.txt and alpha.txt'

source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation fairseq-generate sacrebleu

# The file for the model's output: plain text, or tokenised words, which are then joined to text
words=test.hyp
if [[ $WORDS == tok || $REFERENCE != test ]]; then words=test.hyp.tok; fi

translate() {
    generate test translation 4000
    write_atomically "$RUN/$words" python3 "$TOOLS/translations.py" "$RUN/generate.tmp/generate-test.txt" "$OUTPUT/text/test.$TARGET"
    if [[ $words != test.hyp ]]; then write_atomically "$RUN/test.hyp" sacremoses -q -l "$TARGET" detokenize <"$RUN/$words"; fi
    write_atomically "$RUN/test.ref" cat "$OUTPUT/text/$REFERENCE.$TARGET"
    rm -rf "$RUN/generate.tmp"
}

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/$REFERENCE.$TARGET")
step=$(fingerprint translate "$model" "$data" "${GENERATION[@]}" "$device")
once "translate $run on $device, ${GENERATION[*]} ($RUN/generate.log)" \
    "$RUN/.translate.done" "$step" "$RUN/$words" "$RUN"/test.{hyp,ref} -- translate

# Each line returns its failure: bash ignores set -e in a function whose status is tested
score() {
    sacrebleu "$RUN/test.ref" --input "$RUN/test.hyp" --language-pair "$SOURCE-$TARGET" --metrics bleu chrf --format text --width 2 || return
    if [[ $words != test.hyp ]]; then
        # Tokenised BLEU, as in the papers: comparable only if the same tokeniser cut the
        # reference
        sacrebleu "$OUTPUT/$WORDS/test.$TARGET" --input "$RUN/$words" --metrics bleu \
            --tokenize none --force --format text --width 2 || return
    fi
}

references=("$RUN/test.hyp" "$RUN/test.ref")
if [[ $words != test.hyp ]]; then references+=("$RUN/$words" "$OUTPUT/$WORDS/test.$TARGET"); fi
once "score $run" "$RUN/.scores.done" "$(fingerprint scores "$SOURCE-$TARGET" "$(files_fingerprint "${references[@]}")")" \
    "$RUN/scores.txt" -- write_atomically "$RUN/scores.txt" score

end_evaluation "$RUN/scores.txt"
