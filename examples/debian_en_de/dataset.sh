# Descriptions of Debian's packages, English to German; see README.md.
#
# The package lists are fetched from DEBIAN_MIRROR, or are *Translation-en*, *Translation-de* and
# *Packages* in RAW_DIR. BPE_SIZE is the number of subwords (default: 4000).

SOURCE=en TARGET=de
LANGUAGES=(de en) PROGRAM=pairs.py SPLIT_SEED=1
VALID_SOURCES=${VALID_SOURCES:-50} TEST_SOURCES=${TEST_SOURCES:-50}
source "$ROOT/examples/lib/debian_lists.sh"

LENGTH=8
EPOCH_UPDATES=1358
source "$ROOT/examples/lib/small_translation.sh"
MODELS=(softmax entmax15 entmax)
