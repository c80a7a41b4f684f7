# IWSLT 2017 German-English, Correia et al. (2019).

SOURCE=de TARGET=en
ARCHIVES=(de-en.tgz)
splits() {
    local year
    add train de-en.tgz 'de-en/train.tags.de-en.{lang}'
    add valid de-en.tgz 'de-en/IWSLT17.TED.dev2010.de-en.{lang}.xml' --keep-empty
    for year in 2010 2011 2012 2013 2014 2015; do
        add test de-en.tgz "de-en/IWSLT17.TED.tst$year.de-en.{lang}.xml" --keep-empty
    done
}

EVALUATE_EVERY=5000
source "$ROOT/examples/lib/paper_correia.sh"
