# evaluate.sh of every recipe: translates the test set and scores the translations.
#
# shellcheck shell=bash

evaluate_writes() {
    cat <<TEXT
Writes test.hyp, test.ref, scores.txt and alpha.txt to
the run's folder.
TEXT
}

# shellcheck source=examples/lib/evaluation.sh
source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation fairseq-entmax fairseq-generate sacrebleu

# --- test.hyp, test.ref ------------------------------------------------------

translate() {
    local generated=$RUN/generate.tmp user_dir
    local on_device=(--distributed-world-size 1)
    if [[ $device == cpu ]]; then on_device+=(--cpu); fi
    user_dir=$(fairseq-entmax user-dir)
    rm -rf "$generated"
    # Multiple 1: with its default of 8, current fairseq leaves out up to 7 test sentences.
    fairseq-generate "$OUTPUT/data-bin" --user-dir "$user_dir" \
        --task translation --source-lang "$SOURCE" --target-lang "$TARGET" --gen-subset test \
        --path "$checkpoint" "${GENERATION[@]}" "${REMOVE_BPE[@]}" \
        --max-tokens 4000 --required-batch-size-multiple 1 --num-workers 0 --seed 1 "${on_device[@]}" \
        --log-format simple --results-path "$generated" >"$RUN/generate.log" 2>&1 || {
        tail -n 30 "$RUN/generate.log" >&2
        die "fairseq-generate failed: its last messages are above, all of them in $RUN/generate.log"
    }
    python3 "$TOOLS/translations.py" order "$generated/generate-test.txt" "$OUTPUT/text/test.$TARGET" >"$RUN/test.words.tmp"
    if [[ $WORDS == tok ]]; then
        python3 "$TOOLS/words.py" join "$TARGET" <"$RUN/test.words.tmp" >"$RUN/test.hyp.tmp"
        mv -f "$RUN/test.words.tmp" "$RUN/test.hyp.tok"
    else
        mv -f "$RUN/test.words.tmp" "$RUN/test.hyp.tmp"
    fi
    mv -f "$RUN/test.hyp.tmp" "$RUN/test.hyp"
    write_whole "$RUN/test.ref" cat "$OUTPUT/text/test.$TARGET"
    rm -rf "$generated"
}

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/test.$TARGET")
step=$(fingerprint translate "$(sha256_of "$checkpoint")" "$data" "${GENERATION[@]}" "$device")
if is_done "$RUN/.translate.done" "$step" "$RUN/test.hyp" "$RUN/test.ref"; then
    say "translate $run: done before"
else
    say "translate $run on $device: $(wc -l <"$OUTPUT/text/test.$TARGET") test sentences, ${GENERATION[*]} (log: $RUN/generate.log)"
    rm -f "$RUN/.translate.done"
    translate
    mark_done "$RUN/.translate.done" "$step"
fi

# --- scores.txt --------------------------------------------------------------

# Each line says itself when it fails: bash does not stop in a function whose status is looked at
score() {
    sacrebleu "$RUN/test.ref" --input "$RUN/test.hyp" --metrics bleu chrf --format text --width 2 || return
    if [[ $WORDS == tok ]]; then
        # As in the papers: words as the corpus was cut into, so only comparable where the
        # same tokeniser cut the reference
        sacrebleu "$OUTPUT/tok/test.$TARGET" --input "$RUN/test.hyp.tok" --metrics bleu \
            --tokenize none --force --format text --width 2 || return
    fi
}

references=("$RUN/test.hyp" "$RUN/test.ref")
if [[ $WORDS == tok ]]; then references+=("$RUN/test.hyp.tok" "$OUTPUT/tok/test.$TARGET"); fi
step=$(fingerprint scores "$(files_fingerprint "${references[@]}")")
if is_done "$RUN/.scores.done" "$step" "$RUN/scores.txt"; then
    say "score $run: done before"
else
    say "score $run"
    rm -f "$RUN/.scores.done"
    write_whole "$RUN/scores.txt" score
    mark_done "$RUN/.scores.done" "$step"
fi

# --- alpha.txt ---------------------------------------------------------------

# stock is fairseq's own transformer
if [[ $MAPPING != stock ]]; then write_alpha_table "$checkpoint"; fi

cat "$RUN/scores.txt"
say "results: $RUN"
