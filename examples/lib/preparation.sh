# What every prepare.sh shares: options, archives, --check, and the steps up to words. Sets output and
# workers.

prepare_help() {
    local check='' archives=''
    if [[ -z ${TEXT_BY_OPTIONS-} ]]; then
        check='  --check        only checks that the archives have the required files, and shows names that are
                 similar to a missing one; writes nothing but what it downloads
'
        archives='Environment: RAW_DIR is a folder with archives that you already have; the others are
downloaded to DIR/raw by curl. CORPORA is a table of archives to use instead of examples/corpora.tsv.
An interrupted download resumes.

'
    fi
    print_head_comment "$RECIPE/dataset.sh"
    cat <<TEXT

Makes the data that train.sh reads.

  prepare.sh [options]

  --output DIR   where to write (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the project's folder)
  --workers N    processes that tokenise the text (default: one per core)
$check${PREPARE_HELP-}  --help         this text

${archives}Needs fairseq-preprocess on PATH. Can be run again: finished steps are skipped.
TEXT
}

SCRIPT=prepare
output=$DEFAULT_OUTPUT
workers=$(cores) check=''
while (($# > 0)); do
    case $1 in
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") && shift ;;
    --workers) require_value "$1" $# && require_positive_integer "$1" "$2" && workers=$2 && shift ;;
    --check) check=1 ;;
    --help | -h) prepare_help && exit 0 ;;
    *)
        TOOK=2
        prepare_option "$1" $# "${2-}" ||
            usage_error "unknown option '$1': use --output, --workers, --check${PREPARE_OPTIONS-} or --help"
        shift $((TOOK - 1))
        ;;
    esac
    shift
done
settle_dataset "$output"
[[ -z ${RAW_DIR-} || -d $RAW_DIR ]] || usage_error "RAW_DIR is '$RAW_DIR', which is not a folder: unset it to download, or name the folder with the archives"
[[ ${TRIAL_PAIRS:-1,1,1} =~ ^[1-9][0-9]*(,[1-9][0-9]*){2}$ ]] || usage_error "TRIAL_PAIRS is '$TRIAL_PAIRS': give the numbers of training, validation and test pairs, such as 240,16,12"

# --- data made before --------------------------------------------------------

# build STEP WHAT HOW COMMAND...: makes a folder of the output with a command that writes to STEP.tmp,
# unless the folder is there and has the fingerprint in the variable step
build() {
    if is_done "$output/$1/.done" "$step"; then say "$2: already done" && return; fi
    # Where options of the recipe choose the text, models of an earlier text must not lose their dictionary
    [[ ${TEXT_BY_OPTIONS-0} != 1 || ! -f $output/$1/.done || ! -d $output/runs ]] ||
        die "the data in $output were made from another text or with other options ($1), and $output/runs has models trained on them: choose another --output, or remove $output/runs, with its scores and report"
    say "$2: $3"
    begin_dir "$output/$1"
    timed "$2" "${@:4}"
    # Made from an earlier text; the stamps that the check above needs stay
    [[ $1 != text || ${TEXT_BY_OPTIONS-0} == 1 ]] || rm -f "$output"/{tok,spm,bpe,words,data-bin}/.done
    finish_dir "$output/$1" "$step"
}

# --- archives ----------------------------------------------------------------

corpora=${CORPORA:-$ROOT/examples/corpora.tsv}
[[ -f $corpora ]] || usage_error "CORPORA is '$corpora', which is not a file"

declare -A VERIFIED=() # archives that were checked

# have FILE: sets ARCHIVE_PATH, after downloading the archive if needed
have() {
    if [[ -z ${VERIFIED[$1]-} ]]; then
        python3 "$TOOLS/downloads.py" "$corpora" "$1" ${RAW_DIR:+"$RAW_DIR"} "$output/raw" || return
        VERIFIED[$1]=1
    fi
    ARCHIVE_PATH=$output/raw/$1
    if [[ -n ${RAW_DIR-} && -f $RAW_DIR/$1 ]]; then ARCHIVE_PATH=$RAW_DIR/$1; fi
}

# add SPLIT ARCHIVE MEMBER [OPTION...]: appends the pairs of a corpus to a split. In MEMBER,
# {lang} stands for a language and {role} for src or ref.
add() { take "$1" "$2" pairs "$3" "$SOURCE" "$TARGET" "$output/text.tmp/$1" "${@:4}"; }

# add_text SPLIT ARCHIVE MEMBER: takes one text of an archive, unchanged, as a split
add_text() { take "$1" "$2" text "$3" "$output/text.tmp/$1.$SOURCE"; }

# take SPLIT ARCHIVE COMMAND ARGUMENT...: runs a command of corpora.py. A failure does not end a --check
take() {
    { have "$2" && python3 "$TOOLS/corpora.py" "$3" "$ARCHIVE_PATH" "${@:4}"; } && return
    [[ -n $check ]] || die "cannot read $1 from $2, for the reason above"
    wrong=1
}

# --- steps -------------------------------------------------------------------

# Each sets step, the fingerprint of the steps so far

# make_text UNITS SIDE...: makes text/, the splits as the corpora have them, with a file for each side
make_text() {
    local units=$1 rows split
    shift
    rows=$(awk -F '\t' -v of=" ${ARCHIVES[*]-} " 'index(of, " " $1 " ") { print $1, $2, $3 }' "$corpora")
    step=$(fingerprint text "$rows" "$(declare -f splits)" "$(files_fingerprint "$TOOLS"/{archives,corpora,sentences,subtitles}.py)" \
        "${SPLITS_FROM[@]}" ${TRIAL_PAIRS:+"trial of $TRIAL_PAIRS"})
    build text text "training, validation and test $units" split_text "$@"
    for split in train valid "${TEST_SETS[@]}"; do
        say "$split: $(wc -l <"$output/text/$split.$1") $units"
    done
}

# split_text SIDE...: fills text.tmp/, with a file for each split and side
split_text() {
    local archive split side
    for archive in "${ARCHIVES[@]}"; do
        say "archive: $archive"
        have "$archive"
    done
    splits "$output/text.tmp"
    if [[ -n ${TRIAL_PAIRS-} ]]; then shorten_splits "$output/text.tmp"; fi
    for split in train valid "${TEST_SETS[@]}"; do
        for side in "$@"; do
            [[ -s $output/text.tmp/$split.$side ]] || die "the split $split has no $units"
        done
    done
}

# shorten_splits FOLDER: keeps the first pairs of each split, their references too, as TRIAL_PAIRS says
shorten_splits() {
    local numbers split place=0 file
    IFS=, read -r -a numbers <<<"$TRIAL_PAIRS"
    for split in train valid "${TEST_SETS[@]}" "$REFERENCE"; do
        for file in "$1/$split".*; do write_atomically "$file" head -n "${numbers[place]}" "$file"; done
        if ((place < 2)); then place=$((place + 1)); fi
    done
}

# cut_words SIDE...: makes tok/, with spaces between words. Leaves out training pairs with an empty side,
# or one longer than MAX_WORDS, if it is set
cut_words() {
    local how=(${SPEECH:+--speech "$SPEECH"})
    if [[ $LOWER == 1 ]]; then how+=(--lower); fi
    how+=(${KEEP[@]+--keep "${KEEP[@]}"} ${FIRST_WORDS[@]+--first "${FIRST_WORDS[@]}"})
    step=$(fingerprint tok "$step" "$(sha256_of "$TOOLS/words.py")" "$TOKENIZER" "$MAX_WORDS" "${how[@]}")
    build tok words "split by the tokeniser" cut_splits "$@"
}

cut_splits() {
    local split limit
    for split in train valid "${TEST_SETS[@]}"; do
        # Nothing is left out of validation and test
        limit=()
        if [[ $split == train && -n $MAX_WORDS ]]; then limit=(--max-words "$MAX_WORDS"); fi
        python3 "$TOOLS/words.py" "$output/text/$split" "$output/tok.tmp/$split" "$@" \
            --workers "$workers" "${limit[@]}" "${how[@]}"
        if ((${#limit[@]} == 0)); then require_as_many "$output/text/$split.$1" "$output/tok.tmp/$split.$1"; fi
    done
}

# require_as_many FILE CUT: compares numbers of lines, as not every tool reports that it could not write all
require_as_many() {
    (($(wc -l <"$1") == $(wc -l <"$2"))) ||
        die "$2 has $(wc -l <"$2") lines for the $(wc -l <"$1") of $1: it was not written completely, run again"
}

# preprocess OPTION...: runs fairseq-preprocess; its log, a long list of settings, is kept only if it fails
preprocess() {
    logged "$output/preprocess.log" fairseq-preprocess "$@" --workers "$workers"
    rm -f "$output/preprocess.log"
}

require_commands python3
[[ -n $check ]] || require_commands fairseq-preprocess fairseq-entmax
hold_lock "$output"
# A check works in a folder that is removed at the end; the programs only look for their files
if [[ -n $check ]]; then
    wrong=''
    begin_dir "$output/text"
    RECIPE_CHECK=1 splits "$output/text.tmp"
    [[ -z $wrong ]] || die "not all required files were found, for the reasons above"
    say "check: all required files were found"
    exit
fi
