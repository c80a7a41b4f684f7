# Kyoto Free Translation Task, Japanese-English, Correia et al. (2019).

SOURCE=ja TARGET=en
ARCHIVES=(kftt-data-1.0.tar.gz)
TOKENIZER=none REFERENCE=untouched # the task's authors have cut and cleaned the text
splits() {
    local data=kftt-data-1.0/data
    add train kftt-data-1.0.tar.gz "$data/tok/kyoto-train.cln.{lang}"
    add valid kftt-data-1.0.tar.gz "$data/tok/kyoto-dev.{lang}" --keep-empty
    add test kftt-data-1.0.tar.gz "$data/tok/kyoto-test.{lang}" --keep-empty
    add untouched kftt-data-1.0.tar.gz "$data/orig/kyoto-test.{lang}" --keep-empty
}

EVALUATE_EVERY=5000
source "$ROOT/examples/lib/paper_correia.sh"
