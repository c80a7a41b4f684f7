# Spanish-English Bible verses that come with the project; see README.md.

SOURCE=es TARGET=en
TOKENIZER=none
# Pieces of the subword model of both languages, which prepare.sh learns
BPE_SIZE=${BPE_SIZE:-4000}
require_positive_integer BPE_SIZE "$BPE_SIZE"
SUBWORDS=sentencepiece:$BPE_SIZE
# The quickstart's folder has this recipe's data
DEFAULT_OUTPUT=$ROOT/quickstart

source "$ROOT/examples/bible_es_en/corpus.sh"

LENGTH=6
EPOCH_UPDATES=1817
source "$ROOT/examples/lib/small_translation.sh"
