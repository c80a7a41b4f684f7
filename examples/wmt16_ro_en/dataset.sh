# WMT 2016 Romanian-English, Correia et al. (2019).

SOURCE=ro TARGET=en
ARCHIVES=(training-parallel-ep-v8.tgz SETIMES.en-ro.txt.zip wmt19-dev.tgz)
splits() {
    add train training-parallel-ep-v8.tgz 'training-parallel-ep-v8/europarl-v8.ro-en.{lang}'
    add train SETIMES.en-ro.txt.zip 'SETIMES.en-ro.{lang}'
    add valid wmt19-dev.tgz 'dev/newsdev2016-roen-{role}.{lang}.sgm' --keep-empty
    add test wmt19-dev.tgz 'dev/newstest2016-roen-{role}.{lang}.sgm' --keep-empty
}

EVALUATE_EVERY=10000
source "$ROOT/examples/lib/paper_correia.sh"
