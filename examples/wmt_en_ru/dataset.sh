# WMT English-Russian without UN and Paracrawl, Voita et al. (2019). INTO=de or INTO=fr in the environment
# selects English-German or English-French, with TRAIN_PAIRS of the training pairs (default: 2500000).

SOURCE=en TARGET=${INTO:-ru}
TRAIN_PAIRS=${TRAIN_PAIRS:-2500000}
require_positive_integer TRAIN_PAIRS "$TRAIN_PAIRS"
SPLITS_FROM=("$TARGET" "$TRAIN_PAIRS")
case $TARGET in
ru) ARCHIVES=(training-parallel-nc-v13.tgz wiki-titles.tgz 1mcorpus.zip) ;;
de | fr) ARCHIVES=(training-parallel-europarl-v7.tgz training-parallel-nc-v9.tgz) ;;
*) usage_error "INTO is '$INTO': give ru, de or fr" ;;
esac
ARCHIVES=(training-parallel-commoncrawl.tgz "${ARCHIVES[@]}" wmt19-dev.tgz wmt14-test-full.tgz)
DEFAULT_OUTPUT=${DEFAULT_OUTPUT%ru}$TARGET

splits() {
    local file
    add train training-parallel-commoncrawl.tgz "commoncrawl.$TARGET-en.{lang}"
    if [[ $TARGET == ru ]]; then
        add train training-parallel-nc-v13.tgz 'training-parallel-nc-v13/news-commentary-v13.ru-en.{lang}'
        add train wiki-titles.tgz 'wiki/ru-en/wiki.ru-en' --separator '||| ru,en'
        add train 1mcorpus.zip 'corpus.en_ru.1m.{lang}'
    else
        add train training-parallel-europarl-v7.tgz "training/europarl-v7.$TARGET-en.{lang}"
        add train training-parallel-nc-v9.tgz "training/news-commentary-v9.$TARGET-en.{lang}"
        # TRAIN_PAIRS of them, evenly spaced
        [[ -n $check ]] || for file in "$1"/train.*; do
            write_atomically "$file" awk -v of="$(wc -l <"$file")" -v take="$TRAIN_PAIRS" \
                'int(NR * take / of) > int((NR - 1) * take / of)' "$file"
        done
    fi
    add valid wmt19-dev.tgz 'dev/newstest2013.{lang}' --keep-empty
    add test wmt14-test-full.tgz "test-full/newstest2014-${TARGET}en-{role}.{lang}.sgm" --keep-empty
}

PRUNE_BUDGETS=14/31/30,12/21/25,8/13/15,5/9/12,encoder=10
source "$ROOT/examples/lib/paper_voita.sh"
