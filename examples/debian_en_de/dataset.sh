# Descriptions of Debian's packages, English to German; see README.md.
#
# The package lists are fetched from DEBIAN_MIRROR, or are *Translation-en*, *Translation-de* and
# *Packages* in RAW_DIR. BPE_SIZE is the number of subwords (default: 4000).

SOURCE=en TARGET=de
TOKENIZER=none
# Pieces of the subword model of both languages, which prepare.sh learns
BPE_SIZE=${BPE_SIZE:-4000}
require_positive_integer BPE_SIZE "$BPE_SIZE"
SUBWORDS=sentencepiece:$BPE_SIZE

LANGUAGES=(de en)
source "$ROOT/examples/lib/debian_lists.sh"

# Of a thousand source packages, those for validation and for the test
VALID_SOURCES=${VALID_SOURCES:-50} TEST_SOURCES=${TEST_SOURCES:-50}
SPLIT_SEED=1
SPLITS_FROM=("$VALID_SOURCES" "$TEST_SOURCES" "$SPLIT_SEED"
    "$(files_fingerprint "$RECIPE/pairs.py" "$TOOLS/debian_lists.py")" "$(lists_fingerprint)")

splits() {
    have_lists
    PYTHONPATH=$TOOLS${PYTHONPATH:+:$PYTHONPATH} python3 "$RECIPE/pairs.py" "$LISTS" "$1" \
        --valid "$VALID_SOURCES" --test "$TEST_SOURCES" --seed "$SPLIT_SEED"
}

LENGTH=8
EPOCH_UPDATES=1358
source "$ROOT/examples/lib/small_translation.sh"
MODELS=(softmax entmax15 entmax)
