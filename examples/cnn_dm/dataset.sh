# CNN/Daily Mail, See et al. (2017), as Baan et al. (2019) use it.
#
# Environment: LOWERCASE=1 lowercases everything, as See et al. do; Baan et al. need the capitals for
# their taggers.

source "$ROOT/examples/lib/summaries.sh"

ARCHIVES=(cnn_stories.tgz dailymail_stories.tgz all_train.txt all_val.txt all_test.txt)
LOWERCASE=${LOWERCASE:-0}
case $LOWERCASE in 0 | 1) ;; *) usage_error "LOWERCASE is '$LOWERCASE': give 1, or leave it out" ;; esac
SPLITS_FROM=("$(sha256_of "$TOOLS/stories.py")")
splits() {
    local place=() file
    for file in "${ARCHIVES[@]}"; do
        have "$file"
        place+=("$ARCHIVE_PATH")
    done
    python3 "$TOOLS/stories.py" "$1" "${place[@]}"
}

SPEECH=en LOWER=$LOWERCASE KEEP=('<t>' '</t>')
FIRST_WORDS=(400 100) # of the article and of the summary
MAX_WORDS=400
rouge_options() { ROUGE=(--reference "$2/$1.summary" --sentences '</t>'); }
GENERATION=(--beam 10 --min-len 35 --max-len-a 0 --max-len-b 100
    --length-penalty wu --lenpen 0.9 --coverage-penalty 5
    --no-repeat-ngram-size 3 --no-repeat-ngram-except '. <t> </t>')
