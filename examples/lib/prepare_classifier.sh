# prepare.sh of the recipes for classifiers: from the raw archives to what fairseq-train reads for the
# task sentence_prediction: data-bin/input0, data-bin/input1 where there are pairs, data-bin/label.
#
# shellcheck shell=bash

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
# shellcheck source=examples/lib/preparation.sh
source "$(dirname "${BASH_SOURCE[0]}")/preparation.sh"

require_commands python3 fairseq-preprocess fairseq-entmax
if [[ $TOKENIZER != none ]]; then require_modules sacremoses; fi
hold_lock "$output"
require_own_output "$output"

# as_many SPLIT FOLDER: each of its files has a line an example
as_many() {
    local file lines
    lines=$(wc -l <"$output/text/$1.label")
    for file in "${INPUTS[@]/#/$2/$1.}"; do
        (($(wc -l <"$file") == lines)) ||
            die "$file has $(wc -l <"$file") lines for $lines labels: it was not written whole, run again"
    done
}

# --- text/: the splits, as they are in the corpora ---------------------------

rows=$(python3 "$TOOLS/downloads.py" rows "$corpora" ${ARCHIVES[@]+"${ARCHIVES[@]}"})
step=$(fingerprint text "$rows" "$(declare -f splits)" "$(sha256_of "$TOOLS/archives.py")" \
    ${SPLITS_FROM[@]+"${SPLITS_FROM[@]}"})
if is_done "$output/text/.done" "$step"; then
    say "text: done before"
else
    for archive in ${ARCHIVES[@]+"${ARCHIVES[@]}"}; do
        say "archive: $archive"
        have "$archive"
    done
    say "text: training, validation and test examples"
    begin_dir "$output/text"
    splits "$output/text.tmp"
    for split in train valid test; do
        [[ -s $output/text.tmp/$split.label ]] || die "the split $split has no examples"
    done
    finish_dir "$output/text" "$step"
fi
for split in train valid test; do
    as_many "$split" "$output/text"
    say "$split: $(wc -l <"$output/text/$split.label") examples"
done

# --- tok/: words with spaces between them ------------------------------------

how_to_cut=(--speech "${SPEECH:-en}")
if [[ $LOWER == 1 ]]; then how_to_cut+=(--lower); fi
if [[ $WORDS == tok ]]; then
    step=$(fingerprint tok "$step" "$(sha256_of "$TOOLS/words.py")" "$(python3 "$TOOLS/words.py" versions en)" \
        "${how_to_cut[@]}")
    if is_done "$output/tok/.done" "$step"; then
        say "words: done before"
    else
        say "words: cut by $(python3 "$TOOLS/words.py" versions en)"
        begin_dir "$output/tok"
        for split in train valid test; do
            python3 "$TOOLS/words.py" cut "$output/text/$split" "$output/tok.tmp/$split" "${INPUTS[@]}" \
                --workers "$workers" "${how_to_cut[@]}"
            as_many "$split" "$output/tok.tmp"
        done
        finish_dir "$output/tok" "$step"
    fi
fi

# --- data-bin/: what fairseq-train reads -------------------------------------

# The labels of the training examples, in the order of their names, as a dictionary of fairseq's
label_dictionary() { LC_ALL=C sort "$output/text/train.label" | uniq -c | awk '{ print $2, $1 }'; }

# binarise NAME FOLDER: NAME is input0, input1 or label; its dictionary is there
binarise() {
    local log=$output/data-bin.tmp/console.log dictionary=$output/data-bin.tmp/input.txt
    if [[ $1 == label ]]; then dictionary=$output/data-bin.tmp/label.txt; fi
    fairseq-preprocess --only-source --srcdict "$dictionary" --destdir "$output/data-bin.tmp/$1" --workers "$workers" \
        --trainpref "$2/train.$1" --validpref "$2/valid.$1" --testpref "$2/test.$1" >"$log" 2>&1 || {
        cat "$log" >&2
        die "fairseq-preprocess failed: its messages are above"
    }
    rm -f "$log"
}

unknown_labels() {
    local split
    for split in valid test; do
        LC_ALL=C sort -u "$output/text/$split.label"
    done | LC_ALL=C sort -u | LC_ALL=C comm -23 - <(LC_ALL=C sort -u "$output/text/train.label")
}

number=${SUBWORDS#words:}
step=$(fingerprint data-bin "$step" "$number" "${INPUTS[@]}")
if is_done "$output/data-bin/.done" "$step"; then
    say "binarise: done before"
else
    say "binarise: the $number most frequent words; fairseq-preprocess"
    unknown=$(unknown_labels)
    [[ -z $unknown ]] || die "the training set has no example with the label ${unknown//$'\n'/, }"
    begin_dir "$output/data-bin"
    # One dictionary: the task joins the texts of a pair
    fairseq-entmax oov vocabulary --text "${INPUTS[@]/#/$output/$WORDS/train.}" --words "$number" --markers 0 \
        --output "$output/data-bin.tmp/input.txt" || die "the dictionary could not be made: the message is above"
    write_whole "$output/data-bin.tmp/label.txt" label_dictionary
    for name in "${INPUTS[@]}"; do binarise "$name" "$output/$WORDS"; done
    binarise label "$output/text"
    rm -f "$output"/data-bin.tmp/{input,label}.txt
    finish_dir "$output/data-bin" "$step"
fi
say "data ready: $output/data-bin"
