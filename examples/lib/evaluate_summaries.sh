# evaluate.sh of the recipes for summaries: writes summaries of the test sets and scores them.
#
# A dataset.sh sets, besides what recipe.sh lists:
#
#   rouge_options   function TEST_SET FOLDER: sets the array ROUGE, options of fairseq-entmax
#                   rouge; FOLDER is text/
#
# The numbers of the papers are in published.txt, and are printed after the scores.

WRITES='for each test set the output of fairseq-generate
(test.generated), the summaries (test.hyp) and their ROUGE (test.rouge.json), and scores.txt and
alpha.txt'

source "$(dirname "${BASH_SOURCE[0]}")/evaluation.sh"

begin_evaluation fairseq-generate

# The units are read from the data, which may not have been made with the recipe's default
read -r SUBWORDS <"$OUTPUT/data-bin/units"
derive

# write_summaries SET SUBSET
write_summaries() {
    local written=$RUN/generate.tmp/generate-$2.txt
    generate "$2" entmax_summarization 12000
    if [[ $SUBWORDS == words:* ]]; then
        # The numbered markers that a model copied become the words they stand for
        fairseq-entmax oov restore "$written" --source "$OUTPUT/$WORDS/$1.$SOURCE" \
            --vocab "$OUTPUT/words/dict.txt" --output "$written.words" --overwrite >>"$RUN/generate.log"
        mv -f "$written.words" "$written"
    fi
    write_atomically "$RUN/$1.hyp" python3 "$TOOLS/translations.py" "$written" "$OUTPUT/text/$1.$TARGET"
    mv -f "$written" "$RUN/$1.generated"
    rm -rf "$RUN/generate.tmp"
}

texts=()
for set in "${TEST_SETS[@]}"; do texts+=("$OUTPUT/text/$set".*); done
data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/test* "${texts[@]}")
step=$(fingerprint summaries "$model" "$data" "${GENERATION[@]}" "$device")
hypotheses=() scores=("$RUN/scores.txt")
for number in "${!TEST_SETS[@]}"; do
    set=${TEST_SETS[number]} subset=test
    if ((number > 0)); then subset=test$number; fi # as fairseq-preprocess names further ones
    once "summaries of $set by $run on $device, ${GENERATION[*]} ($RUN/generate.log)" \
        "$RUN/.$set.done" "$step" "$RUN/$set.hyp" "$RUN/$set.generated" -- write_summaries "$set" "$subset"
    hypotheses+=("$RUN/$set.hyp") scores+=("$RUN/$set.rouge.json")
done

# Each line returns its failure: bash ignores set -e in a function whose status is tested
score() {
    local set ROUGE
    for set in "${TEST_SETS[@]}"; do
        rouge_options "$set" "$OUTPUT/text" || return
        if ((${#TEST_SETS[@]} > 1)); then printf '%s\n' "$set"; fi
        fairseq-entmax rouge "$RUN/$set.hyp" --text "${ROUGE[@]}" \
            --output "$RUN/$set.rouge.json" --overwrite || return
    done
}

step=$(fingerprint scores "$(files_fingerprint "${hypotheses[@]}" "${texts[@]}")" "$(declare -f rouge_options)")
once "score $run: ROUGE" "$RUN/.scores.done" "$step" "${scores[@]}" -- write_atomically "$RUN/scores.txt" score

end_evaluation "$RUN/scores.txt"
