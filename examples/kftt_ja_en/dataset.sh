# Kyoto Free Translation Task, Japanese-English, Correia et al. (2019).

SOURCE=ja TARGET=en
ARCHIVES=(kftt-data-1.0.tar.gz)
MAX_WORDS=40 # as in the task's own cleaned training set
splits() {
    local split
    for split in train dev test; do
        add "${split/dev/valid}" kftt-data-1.0.tar.gz "kftt-data-1.0/data/orig/kyoto-$split.{lang}" --keep-empty
    done
}

EVALUATE_EVERY=5000
source "$ROOT/examples/lib/paper_correia.sh"
