# prepare.sh of every recipe: from the raw archives to what fairseq-train reads.
#
# shellcheck shell=bash

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

# shellcheck source=examples/lib/preparation.sh
source "$(dirname "${BASH_SOURCE[0]}")/preparation.sh"

require_commands python3 fairseq-preprocess
case $PIECES in
spm) modules=(sentencepiece) ;;
bpe) modules=(subword_nmt) ;;
words) modules=() && require_commands fairseq-entmax ;;
*) modules=() ;;
esac
if [[ $TOKENIZER != none ]]; then modules+=(sacremoses); fi
if [[ $TOKENIZER != none && " ${SIDES[*]} " == *" ja "* ]]; then modules+=(sudachipy sudachidict_core); fi
require_modules ${modules[@]+"${modules[@]}"}
hold_lock "$output"

# add_text SPLIT ARCHIVE MEMBER: appends a text, as it is in the archive, to a split of one text
add_text() {
    have "$2"
    python3 "$TOOLS/corpora.py" text "$ARCHIVE_PATH" "$3" "$output/text.tmp/$1.$SOURCE" ||
        die "cannot take $1 from $2: the message is above"
}

# shorten_splits FOLDER: the first pairs of each split, as many as TRIAL_PAIRS says
shorten_splits() {
    local of_train of_valid of_test split number file
    IFS=, read -r of_train of_valid of_test <<<"$TRIAL_PAIRS"
    for split in train valid "${TEST_SETS[@]}"; do
        case $split in
        train) number=$of_train ;;
        valid) number=$of_valid ;;
        *) number=$of_test ;;
        esac
        for file in "${SIDES[@]/#/$1/$split.}"; do write_whole "$file" head -n "$number" "$file"; done
    done
}

# --- text/: the splits, as they are in the corpora ---------------------------

units=pairs
if ((${#SIDES[@]} == 1)); then units=lines; fi
rows=$(python3 "$TOOLS/downloads.py" rows "$corpora" ${ARCHIVES[@]+"${ARCHIVES[@]}"})
trial=()
if [[ -n ${TRIAL_PAIRS-} ]]; then
    [[ $TRIAL_PAIRS =~ ^[1-9][0-9]*,[1-9][0-9]*,[1-9][0-9]*$ ]] ||
        usage_error "TRIAL_PAIRS is '$TRIAL_PAIRS': give the pairs of training, validation and test, such as 240,16,12"
    trial=("trial of $TRIAL_PAIRS")
fi
step=$(fingerprint text "$rows" "$(declare -f splits)" "$(files_fingerprint "$TOOLS"/{archives,corpora,sentences,subtitles}.py)" \
    ${SPLITS_FROM[@]+"${SPLITS_FROM[@]}"} ${trial[@]+"${trial[@]}"})
if is_up_to_date text "$step"; then
    say "text: done before"
else
    for archive in ${ARCHIVES[@]+"${ARCHIVES[@]}"}; do
        say "archive: $archive"
        have "$archive"
    done
    say "text: training, validation and test $units"
    begin_dir "$output/text"
    splits "$output/text.tmp"
    if ((${#trial[@]} > 0)); then shorten_splits "$output/text.tmp"; fi
    for split in train valid "${TEST_SETS[@]}"; do
        for side in "${SIDES[@]}"; do
            [[ -s $output/text.tmp/$split.$side ]] || die "the split $split has no sentences"
        done
    done
    finish_dir "$output/text" "$step"
fi
for split in train valid "${TEST_SETS[@]}"; do
    say "$split: $(wc -l <"$output/text/$split.$SOURCE") $units"
done

# --- tok/: words with spaces between them ------------------------------------

keep=(${KEEP[@]+--keep "${KEEP[@]}"})
how_to_cut=(${SPEECH:+--speech "$SPEECH"})
if [[ $LOWER == 1 ]]; then how_to_cut+=(--lower); fi
how_to_cut+=(${keep[@]+"${keep[@]}"} ${FIRST_WORDS[@]+--first "${FIRST_WORDS[@]}"})
if [[ $WORDS == tok ]]; then
    step=$(fingerprint tok "$step" "$(sha256_of "$TOOLS/words.py")" "$TOKENIZER" "$MAX_WORDS" \
        "$(python3 "$TOOLS/words.py" versions "$SOURCE" "$TARGET")" ${how_to_cut[@]+"${how_to_cut[@]}"})
    if is_up_to_date tok "$step"; then
        say "words: done before"
    else
        say "words: cut by $(python3 "$TOOLS/words.py" versions "$SOURCE" "$TARGET")"
        begin_dir "$output/tok"
        for split in train valid "${TEST_SETS[@]}"; do
            # Nothing is left out of validation and test
            limit=()
            if [[ $split == train ]]; then limit=(--max-words "$MAX_WORDS"); fi
            python3 "$TOOLS/words.py" cut "$output/text/$split" "$output/tok.tmp/$split" \
                "$SOURCE" "$TARGET" --workers "$workers" ${limit[@]+"${limit[@]}"} ${how_to_cut[@]+"${how_to_cut[@]}"}
        done
        finish_dir "$output/tok" "$step"
    fi
fi

# --- spm/, bpe/ or words/: subwords or words, and the text cut with them -----

number=${SUBWORDS#*:}
# The bar of subword-nmt is for a terminal alone
[[ -t 2 ]] || export TQDM_DISABLE=1

learn_sentencepiece() {
    python3 "$TOOLS/bpe.py" learn --vocab "$number" --option="${SIZE_OPTION:---vocab}" --model "$output/spm.tmp/bpe.model" \
        "${SIDES[@]/#/$output/$WORDS/train.}" || exit
}

cut_by_sentencepiece() {
    python3 "$TOOLS/bpe.py" encode --model "$output/spm.tmp/bpe.model" \
        <"$output/$WORDS/$1" >"$output/spm.tmp/$1"
}

# codes_of LANGUAGE: the file of merges for a language
codes_of() {
    if [[ $SUBWORDS == joint:* ]]; then echo "$output/bpe.tmp/codes"; else echo "$output/bpe.tmp/codes.$1"; fi
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
    python3 "$TOOLS/bpe.py" apply --codes "$(codes_of "${1##*.}")" --workers "$workers" ${keep[@]+"${keep[@]}"} \
        <"$output/$WORDS/$1" >"$output/bpe.tmp/$1"
}

# No subwords: a word that is none of the vocabulary becomes a number, in a source and its target
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

# require_as_many FILE CUT: a tool that could not write all of it may not have said so
require_as_many() {
    (($(wc -l <"$1") == $(wc -l <"$2"))) ||
        die "$2 has $(wc -l <"$2") lines for the $(wc -l <"$1") of $1: it was not written whole, run again"
}

case $PIECES in
spm) learn=learn_sentencepiece cut=cut_by_sentencepiece step_tool=$(sha256_of "$TOOLS/bpe.py") ;;
bpe) learn=learn_merges cut=cut_by_merges step_tool=$(sha256_of "$TOOLS/bpe.py")$(python3 -c 'from importlib.metadata import version; print(version("subword-nmt"))') ;;
words) learn=learn_words cut=true step_tool=$MARKERS ;;
*) step_tool='' ;;
esac
step=$(fingerprint pieces "$step" "$step_tool" "$SUBWORDS" ${keep[@]+"${keep[@]}"})
if [[ $PIECES == "$WORDS" ]]; then
    say "subwords: none, every word of the training text is in the dictionary"
elif is_up_to_date "$PIECES" "$step"; then
    say "subwords: done before"
else
    say "subwords: $SUBWORDS, learned on the training text"
    begin_dir "$output/$PIECES"
    "$learn" || die "the subword model could not be learned: the message is above"
    for split in train valid "${TEST_SETS[@]}"; do
        for language in "${SIDES[@]}"; do
            "$cut" "$split.$language" || die "$split.$language could not be cut: the message is above"
            require_as_many "$output/$WORDS/$split.$language" "$output/$PIECES.tmp/$split.$language"
        done
    done
    finish_dir "$output/$PIECES" "$step"
fi

# --- data-bin/: what fairseq-train reads -------------------------------------

joined=()
if [[ $SUBWORDS != separate:* ]]; then joined=(--joined-dictionary); fi
if ((${#SIDES[@]} == 1)); then joined=(--only-source); fi
known=()
if [[ $PIECES == words ]]; then known=(--srcdict "$output/words/dict.txt"); fi
# Of one text the names of the files, of two what they begin with
end=''
languages=(--source-lang "$SOURCE" --target-lang "$TARGET")
if ((${#SIDES[@]} == 1)); then end=.$SOURCE languages=(); fi
tests=$(printf ",$output/$PIECES/%s$end" "${TEST_SETS[@]}")
step=$(fingerprint data-bin "$step" ${joined[@]+"${joined[@]}"} "${TEST_SETS[@]:1}")
if is_up_to_date data-bin "$step"; then
    say "binarise: done before"
else
    say "binarise: fairseq-preprocess"
    begin_dir "$output/data-bin"
    # Its long listing of settings is in data-bin/preprocess.log for who wants it.
    log=$output/data-bin.tmp/console.log
    fairseq-preprocess ${languages[@]+"${languages[@]}"} ${joined[@]+"${joined[@]}"} ${known[@]+"${known[@]}"} \
        --trainpref "$output/$PIECES/train$end" --validpref "$output/$PIECES/valid$end" --testpref "${tests#,}" \
        --destdir "$output/data-bin.tmp" --workers "$workers" >"$log" 2>&1 || {
        cat "$log" >&2
        die "fairseq-preprocess failed: its messages are above"
    }
    rm -f "$log"
    printf '%s\n' "$SUBWORDS" >"$output/data-bin.tmp/units"
    finish_dir "$output/data-bin" "$step"
fi
take_results_back
say "data ready: $output/data-bin"
