# Gigaword, Rush et al. (2015), with DUC 2004 as a second test set.

source "$ROOT/examples/lib/summaries.sh"

ARCHIVES=(sent-summary.tar.gz)
SPLITS_FROM=("$(sha256_of "$TOOLS/gigaword.py")")
splits() {
    have "${ARCHIVES[0]}"
    python3 "$TOOLS/gigaword.py" "$1" "$ARCHIVE_PATH"
}

TOKENIZER=none # the archive has words with spaces between them
TEST_SETS=(test duc2004)
GENERATION=(--beam 10 --min-len 1 --max-len-a 0 --max-len-b 40
    --length-penalty wu --lenpen 0.9 --no-repeat-ngram-size 3)
# DUC 2004 compares the first 75 bytes with the summaries of four people
rouge_options() {
    case $1 in
    duc2004) ROUGE=(--bytes 75 --reference "$2/duc2004.reference0" --reference "$2/duc2004.reference1"
        --reference "$2/duc2004.reference2" --reference "$2/duc2004.reference3") ;;
    *) ROUGE=(--reference "$2/$1.reference0") ;;
    esac
}
