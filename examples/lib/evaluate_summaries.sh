# evaluate.sh of the recipes for summaries: writes summaries of the test sets and scores them.
#
# A dataset.sh says, beside what recipe.sh lists:
#
#   rouge_options   function: sets the array ROUGE, options of fairseq-entmax rouge; is told
#                   the test set and the folder text/
#
# and in published.txt the numbers of the papers, which are printed behind the scores.
#
# shellcheck shell=bash

evaluate_writes() {
    cat <<TEXT
Writes to the run's folder, for each of the test sets
(${TEST_SETS[*]}), what fairseq-generate wrote (test.generated), the summaries (test.hyp) and their
ROUGE (test.rouge.json), and scores.txt and alpha.txt.
TEXT
}

# shellcheck source=examples/lib/evaluation.sh
source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

require_modules rouge_score
begin_evaluation fairseq-entmax fairseq-generate

# What the data consist of is asked of the data: they may be others than the recipe's default
read -r units <"$OUTPUT/data-bin/units"
if [[ $units == words:* ]]; then REMOVE_BPE=(); fi

# --- SET.generated, SET.hyp --------------------------------------------------

# with_words GENERATED SET: the numbers that a model copied become the words they stand for
with_words() {
    [[ $units == words:* ]] || return 0
    fairseq-entmax oov restore "$1" --source "$OUTPUT/$WORDS/$2.$SOURCE" \
        --vocab "$OUTPUT/words/dict.txt" --output "$1.words" --overwrite >>"$RUN/generate.log" || return
    mv -f "$1.words" "$1"
}

# write_summaries SET SUBSET
write_summaries() {
    local set=$1 generated=$RUN/generate.tmp user_dir
    local on_device=(--distributed-world-size 1)
    if [[ $device == cpu ]]; then on_device+=(--cpu); fi
    user_dir=$(fairseq-entmax user-dir)
    rm -rf "$generated"
    # Multiple 1: with its default of 8, current fairseq leaves out up to 7 test sentences.
    fairseq-generate "$OUTPUT/data-bin" --user-dir "$user_dir" \
        --task entmax_summarization --source-lang "$SOURCE" --target-lang "$TARGET" --gen-subset "$2" \
        --path "$checkpoint" "${GENERATION[@]}" ${REMOVE_BPE[@]+"${REMOVE_BPE[@]}"} \
        --max-tokens 12000 --required-batch-size-multiple 1 --num-workers 0 --seed 1 "${on_device[@]}" \
        --log-format simple --results-path "$generated" >"$RUN/generate.log" 2>&1 || {
        tail -n 30 "$RUN/generate.log" >&2
        die "fairseq-generate failed: its last messages are above, all of them in $RUN/generate.log"
    }
    with_words "$generated/generate-$2.txt" "$set"
    python3 "$TOOLS/translations.py" order "$generated/generate-$2.txt" "$OUTPUT/text/$set.$TARGET" \
        >"$RUN/$set.hyp.tmp"
    mv -f "$generated/generate-$2.txt" "$RUN/$set.generated"
    mv -f "$RUN/$set.hyp.tmp" "$RUN/$set.hyp"
    rm -rf "$generated"
}

texts=()
for set in "${TEST_SETS[@]}"; do texts+=("$OUTPUT/text/$set".*); done
data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/test* "${texts[@]}")
for number in "${!TEST_SETS[@]}"; do
    set=${TEST_SETS[number]} subset=test
    if ((number > 0)); then subset=test$number; fi # as fairseq-preprocess names further ones
    step=$(fingerprint summaries "$(sha256_of "$checkpoint")" "$data" "${GENERATION[@]}" "$device")
    if is_done "$RUN/.$set.done" "$step" "$RUN/$set.hyp" "$RUN/$set.generated"; then
        say "summaries of $set by $run: done before"
        continue
    fi
    say "summaries of $set by $run on $device: $(wc -l <"$OUTPUT/text/$set.$TARGET") of them, ${GENERATION[*]} ($RUN/generate.log)"
    rm -f "$RUN/.$set.done"
    write_summaries "$set" "$subset"
    mark_done "$RUN/.$set.done" "$step"
done

# --- scores.txt --------------------------------------------------------------

# Each line says itself when it fails: bash does not stop in a function whose status is looked at
score() {
    local set ROUGE
    for set in "${TEST_SETS[@]}"; do
        rouge_options "$set" "$OUTPUT/text" || return
        if ((${#TEST_SETS[@]} > 1)); then printf '%s\n' "$set"; fi
        fairseq-entmax rouge "$RUN/$set.hyp" --text "${ROUGE[@]}" \
            --output "$RUN/$set.rouge.json" --overwrite || return
    done
}

hypotheses=() scores=("$RUN/scores.txt")
for set in "${TEST_SETS[@]}"; do hypotheses+=("$RUN/$set.hyp") && scores+=("$RUN/$set.rouge.json"); done
step=$(fingerprint scores "$(files_fingerprint "${hypotheses[@]}" "${texts[@]}")" "$(declare -f rouge_options)")
if is_done "$RUN/.scores.done" "$step" "${scores[@]}"; then
    say "score $run: done before"
else
    say "score $run: ROUGE"
    rm -f "$RUN/.scores.done"
    write_whole "$RUN/scores.txt" score
    mark_done "$RUN/.scores.done" "$step"
fi

# --- alpha.txt ---------------------------------------------------------------

write_alpha_table "$checkpoint"

cat "$RUN/scores.txt"
if [[ -f $RECIPE/published.txt ]]; then cat "$RECIPE/published.txt"; fi
say "results: $RUN"
