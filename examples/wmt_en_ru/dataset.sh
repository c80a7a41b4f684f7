# WMT English-Russian without UN and Paracrawl, Voita et al. (2019).

SOURCE=en TARGET=ru
ARCHIVES=(training-parallel-commoncrawl.tgz training-parallel-nc-v13.tgz wiki-titles.tgz
    1mcorpus.zip wmt19-dev.tgz)
splits() {
    add train training-parallel-commoncrawl.tgz 'commoncrawl.ru-en.{lang}'
    add train training-parallel-nc-v13.tgz 'training-parallel-nc-v13/news-commentary-v13.ru-en.{lang}'
    add train wiki-titles.tgz 'wiki/ru-en/wiki.ru-en' --separator '||| ru,en'
    add train 1mcorpus.zip 'corpus.en_ru.1m.{lang}'
    add valid wmt19-dev.tgz 'dev/newstest2013.{lang}' --keep-empty
    add test wmt19-dev.tgz 'dev/newstest2014-ruen-{role}.{lang}.sgm' --keep-empty
}

PRUNE_BUDGETS=14/31/30,12/21/25,8/13/15,5/9/12
source "$ROOT/examples/lib/paper_voita.sh"
