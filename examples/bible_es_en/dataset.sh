# Spanish-English Bible verses that come with the project; see README.md.

SOURCE=es TARGET=en
# The quickstart uses this recipe's data
DEFAULT_OUTPUT=$ROOT/quickstart

source "$ROOT/examples/bible_es_en/corpus.sh"

LENGTH=6
EPOCH_UPDATES=1817
source "$ROOT/examples/lib/small_translation.sh"
MODELS=(softmax entmax15 entmax)
