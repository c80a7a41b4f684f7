# Spanish-English Bible verses that come with the project; see README.md.
#
# shellcheck shell=bash disable=SC2034

SOURCE=es TARGET=en
TOKENIZER=none
SUBWORDS=sentencepiece:4000
# The quickstart's folder has this recipe's data
DEFAULT_OUTPUT=$ROOT/quickstart

# shellcheck source=examples/bible_es_en/corpus.sh
source "$ROOT/examples/bible_es_en/corpus.sh"

LENGTH=6
EPOCH_UPDATES=1817
# shellcheck source=examples/lib/small_translation.sh
source "$ROOT/examples/lib/small_translation.sh"
