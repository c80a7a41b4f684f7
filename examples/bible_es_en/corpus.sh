# The shipped verses and their splits, for the recipes that read them.

BIBLE=$ROOT/examples/bible_es_en
CORPUS=$BIBLE/data/bible.es-en.tsv.xz
SPLIT_SEED=1 VALID=1000 TEST=1000
SPLITS_FROM=("$(sha256_of "$CORPUS")" "$(sha256_of "$BIBLE/split.py")" "$SPLIT_SEED" "$VALID" "$TEST")

splits() {
    python3 "$BIBLE/split.py" "$CORPUS" "$1" --valid "$VALID" --test "$TEST" --seed "$SPLIT_SEED"
}
