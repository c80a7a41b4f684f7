# WMT 2014 English-German, Correia et al. (2019).

SOURCE=en TARGET=de
ARCHIVES=(training-parallel-europarl-v7.tgz training-parallel-commoncrawl.tgz
    training-parallel-nc-v9.tgz wmt19-dev.tgz wmt14-test-full.tgz)
splits() {
    add train training-parallel-europarl-v7.tgz 'training/europarl-v7.de-en.{lang}'
    add train training-parallel-commoncrawl.tgz 'commoncrawl.de-en.{lang}'
    add train training-parallel-nc-v9.tgz 'training/news-commentary-v9.de-en.{lang}'
    add valid wmt19-dev.tgz 'dev/newstest2013.{lang}' --keep-empty
    add test wmt14-test-full.tgz 'test-full/newstest2014-deen-{role}.{lang}.sgm' --keep-empty
}

EVALUATE_EVERY=10000
source "$ROOT/examples/lib/paper_correia.sh"
