# The shipped verses and how they are split, for the recipes that read them.

BIBLE=$ROOT/examples/bible_es_en
CORPUS=$BIBLE/data/bible.es-en.tsv.xz
SPLIT_SEED=1 VALID=1000 TEST=1000
SPLITS_FROM=("$(sha256_of "$CORPUS")" "$(sha256_of "$BIBLE/split.py")" "$SPLIT_SEED" "$VALID" "$TEST")

splits() {
    [[ ${SPLITS_FROM[0]} == "$(cut -d' ' -f1 "$BIBLE/data/SHA256SUMS")" ]] ||
        die "$CORPUS has the SHA-256 ${SPLITS_FROM[0]}, expected $(cut -d' ' -f1 "$BIBLE/data/SHA256SUMS"): the file is damaged, fetch it anew"
    python3 "$BIBLE/split.py" "$CORPUS" "$1" \
        --valid "$VALID" --test "$TEST" --seed "$SPLIT_SEED"
}
