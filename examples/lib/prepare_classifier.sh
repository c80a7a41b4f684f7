# prepare.sh of the recipes for classifiers: from the raw archives to what fairseq-train reads for the
# task sentence_prediction: data-bin/input0, data-bin/input1 for pairs, and data-bin/label. The environment
# variable DICTIONARY names the dict.txt of a model to start from, which replaces the most frequent words.

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
[[ -z ${DICTIONARY-} || -f $DICTIONARY ]] ||
    usage_error "DICTIONARY is '$DICTIONARY', which is not a file: name the dict.txt of a model, or leave it out"
source "$(dirname "${BASH_SOURCE[0]}")/preparation.sh"

step='' TARGET='' MAX_WORDS=''
make_text examples label "${INPUTS[@]}"
for split in train valid test; do
    for input in "${INPUTS[@]}"; do require_as_many "$output/text/$split.label" "$output/text/$split.$input"; done
done
if [[ $WORDS == tok ]]; then cut_words "${INPUTS[@]}"; fi

# --- data-bin/: what fairseq-train reads -------------------------------------

# binarise_one NAME FOLDER DICTIONARY: NAME is input0, input1 or label
binarise_one() {
    preprocess --only-source --srcdict "$output/data-bin.tmp/$3" --destdir "$output/data-bin.tmp/$1" \
        --trainpref "$2/train.$1" --validpref "$2/valid.$1" --testpref "$2/test.$1"
}

binarise() {
    local unknown name
    unknown=$(LC_ALL=C sort -u "$output"/text/{valid,test}.label |
        LC_ALL=C comm -23 - <(LC_ALL=C sort -u "$output/text/train.label"))
    [[ -z $unknown ]] || die "the training set has no example with the label ${unknown//$'\n'/, }"
    # One dictionary, as the task joins the texts of a pair
    if [[ -n $given ]]; then
        cp "$DICTIONARY" "$output/data-bin.tmp/input.txt"
    else
        fairseq-entmax oov vocabulary --text "${INPUTS[@]/#/$output/$WORDS/train.}" --words "$number" --markers 0 \
            --output "$output/data-bin.tmp/input.txt" || die "the dictionary could not be made, for the reason above"
    fi
    LC_ALL=C sort "$output/text/train.label" | uniq -c | awk '{ print $2, $1 }' >"$output/data-bin.tmp/label.txt"
    for name in "${INPUTS[@]}"; do binarise_one "$name" "$output/$WORDS" input.txt; done
    binarise_one label "$output/text" label.txt
    rm -f "$output"/data-bin.tmp/{input,label}.txt
}

number=${SUBWORDS#words:}
given=$([[ -z ${DICTIONARY-} ]] || sha256_of "$DICTIONARY")
step=$(fingerprint data-bin "$step" "$number" ${given:+"$given"} "${INPUTS[@]}")
build data-bin binarise "the $number most frequent words; fairseq-preprocess" binarise
say "data ready: $output/data-bin"
