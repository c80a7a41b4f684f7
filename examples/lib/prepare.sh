# prepare.sh of every recipe: from the raw archives to what fairseq-train reads.

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
source "$(dirname "${BASH_SOURCE[0]}")/preparation.sh"

units=pairs
if ((${#SIDES[@]} == 1)); then units=lines; fi
step=''
make_text "$units" "${SIDES[@]}"
if [[ $WORDS == tok ]]; then cut_words "${SIDES[@]}"; fi

# --- spm/, bpe/ or words/: subwords or words, and the text cut with them -----

number=${SUBWORDS#*:}
# subword-nmt's progress bar is only for a terminal
[[ -t 2 ]] || export TQDM_DISABLE=1

learn_sentencepiece() {
    python3 "$TOOLS/bpe.py" learn "$output/spm.tmp/bpe.model" "$number" \
        "${SIDES[@]/#/$output/$WORDS/train.}" || exit
}

cut_by_sentencepiece() {
    python3 "$TOOLS/bpe.py" encode "$output/spm.tmp/bpe.model" <"$output/$WORDS/$1" >"$output/spm.tmp/$1"
}

learn_merges() {
    local language
    if [[ $SUBWORDS == joint:* ]]; then
        cat "${SIDES[@]/#/$output/$WORDS/train.}" |
            subword-nmt learn-bpe -s "$number" -o "$output/bpe.tmp/codes"
        return
    fi
    for language in "${SIDES[@]}"; do
        subword-nmt learn-bpe -s "$number" -i "$output/$WORDS/train.$language" \
            -o "$output/bpe.tmp/codes.$language" || return
    done
}

cut_by_merges() {
    local codes=$output/bpe.tmp/codes
    if [[ $SUBWORDS != joint:* ]]; then codes+=.${1##*.}; fi
    subword-nmt apply-bpe --codes "$codes" --input "$output/$WORDS/$1" --num-workers "$workers" \
        ${KEEP[@]+--glossaries "${KEEP[@]}"} >"$output/bpe.tmp/$1"
}

# No subwords: a word outside the vocabulary becomes a numbered marker, the same in source and target
learn_words() {
    local split
    fairseq-entmax oov vocabulary --text "$output/$WORDS/train.$SOURCE" "$output/$WORDS/train.$TARGET" \
        --words "$number" --markers "$MARKERS" --output "$output/words.tmp/dict.txt" || return
    for split in train valid "${TEST_SETS[@]}"; do
        fairseq-entmax oov mark --vocab "$output/words.tmp/dict.txt" \
            --source "$output/$WORDS/$split.$SOURCE" --target "$output/$WORDS/$split.$TARGET" \
            --output-source "$output/words.tmp/$split.$SOURCE" \
            --output-target "$output/words.tmp/$split.$TARGET" || return
    done
}

case $PIECES in
spm) learn=learn_sentencepiece cut=cut_by_sentencepiece step_tool=$(sha256_of "$TOOLS/bpe.py") ;;
bpe) learn=learn_merges cut=cut_by_merges step_tool='' ;;
words) learn=learn_words cut=true step_tool=$MARKERS ;;
*) step_tool='' ;;
esac
step=$(fingerprint pieces "$step" "$step_tool" "$SUBWORDS" "${KEEP[@]}")
cut_pieces() {
    local split language
    "$learn" || die "the subword model could not be learned, for the reason above"
    for split in train valid "${TEST_SETS[@]}"; do
        for language in "${SIDES[@]}"; do
            "$cut" "$split.$language" || die "$split.$language could not be split into subwords, for the reason above"
            require_as_many "$output/$WORDS/$split.$language" "$output/$PIECES.tmp/$split.$language"
        done
    done
}

if [[ $PIECES == "$WORDS" ]]; then
    say "subwords: none, every word of the training text is in the dictionary"
else
    build "$PIECES" subwords "$SUBWORDS, learned from the training text" cut_pieces
fi

# --- data-bin/: what fairseq-train reads -------------------------------------

joined=() known=() end='' languages=(--source-lang "$SOURCE" --target-lang "$TARGET")
if [[ $SUBWORDS != separate:* ]]; then joined=(--joined-dictionary); fi
if [[ $PIECES == words ]]; then known=(--srcdict "$output/words/dict.txt"); fi
# For one text fairseq-preprocess takes whole file names, for two their common prefix
if ((${#SIDES[@]} == 1)); then joined=(--only-source) end=.$SOURCE languages=(); fi
tests=$(for split in "${TEST_SETS[@]}"; do printf ',%s' "$output/$PIECES/$split$end"; done)
step=$(fingerprint data-bin "$step" "${joined[@]}" "${TEST_SETS[@]:1}")
binarise() {
    preprocess "${languages[@]}" "${joined[@]}" "${known[@]}" \
        --trainpref "$output/$PIECES/train$end" --validpref "$output/$PIECES/valid$end" --testpref "${tests#,}" \
        --destdir "$output/data-bin.tmp"
    printf '%s\n' "$SUBWORDS" >"$output/data-bin.tmp/units"
}
build data-bin binarise fairseq-preprocess binarise
say "data ready: $output/data-bin"
