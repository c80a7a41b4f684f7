# Preparations: what every prepare.sh has, whatever it prepares: its options, and the archives.
#
# Sets output and workers.
#
# shellcheck shell=bash disable=SC2034

prepare_help() {
    print_head_comment "$0"
    cat <<TEXT

  prepare.sh [options]

  --output DIR   where to write (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the project's folder)
  --workers N    processes that cut the text (default: one for each core)
${PREPARE_HELP-}  --help         this text

TEXT
    if ((${#ARCHIVES[@]} == 0)); then
        printf 'Needs fairseq-preprocess on PATH. Can be run again: what is done is skipped.\n'
        return
    fi
    cat <<TEXT
Environment: RAW_DIR is a folder with archives that are there already; what is not there is
downloaded to DIR/raw. CORPORA is a table of archives to use instead of examples/corpora.tsv.

Needs fairseq-preprocess on PATH and, for archives that are not in RAW_DIR, curl. Can be run
again: what is done is skipped, and a download that was stopped goes on.
TEXT
}

# require_own_output FOLDER: refuses one with data that the recipe's own options would overwrite
declare -F require_own_output >/dev/null || require_own_output() { :; }

SCRIPT=prepare
output=$DEFAULT_OUTPUT
workers=$(getconf _NPROCESSORS_ONLN)
while (($# > 0)); do
    case $1 in
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") && shift ;;
    --workers) require_value "$1" $# && require_positive_integer "$1" "$2" && workers=$2 && shift ;;
    --help | -h) prepare_help && exit 0 ;;
    *)
        TOOK=2
        prepare_option "$1" $# "${2-}" ||
            usage_error "unknown option '$1': use --output, --workers${PREPARE_OPTIONS-} or --help"
        shift $((TOOK - 1))
        ;;
    esac
    shift
done
settle_dataset "$output"
[[ -z ${RAW_DIR-} || -d $RAW_DIR ]] || usage_error "RAW_DIR is '$RAW_DIR', and there is no such folder: leave it out to download, or name the folder with the archives"

# --- data made before of another text ----------------------------------------

PRODUCTS=(text tok spm bpe words data-bin) # of the steps, in their order
RESULTS=(runs scores.tsv .scores.done compare)
UP_TO_DATE=() # products of this text, so far

# is_up_to_date STEP FINGERPRINT: fails where the step is to be done. Where it was done of another text
# or with other settings, that is said first; and where a recipe's options say what the text is
# (TEXT_BY_OPTIONS), all that came of it is set aside, as models are worth nothing without their dictionary.
is_up_to_date() {
    if is_done "$output/$1/.done" "$2"; then
        UP_TO_DATE+=("$1")
        return
    fi
    if [[ ${TEXT_BY_OPTIONS-0} == 1 && -f $output/$1/.done ]]; then
        say "$1: $output/$1 is of another text or other options, and is made anew"
        set_data_aside
    fi
    UP_TO_DATE+=("$1")
    return 1
}

# found_results FOLDER: sets FOUND, the results of trainings that it has
found_results() {
    local result
    FOUND=()
    for result in "${RESULTS[@]}"; do
        if [[ -e $1/$result ]]; then FOUND+=("$result"); fi
    done
}

# set_data_aside: what was made of the data of before becomes an --output of its own, with the data
set_data_aside() {
    local n=1 one earlier
    found_results "$output"
    ((${#FOUND[@]} > 0)) || return 0
    while [[ -e $output/replaced-$n ]]; do n=$((n + 1)); done
    earlier=$output/replaced-$n
    WRITING=$earlier BUILDING=$earlier
    make_dir "$earlier"
    for one in ${UP_TO_DATE[@]+"${UP_TO_DATE[@]}"}; do
        cp -Rp "$output/$one" "$earlier/" || exit # both need it
    done
    BUILDING='' # from now on it has what is nowhere else
    for one in "${FOUND[@]}"; do mv "$output/$one" "$earlier/" || exit; done
    for one in "${PRODUCTS[@]}"; do
        if [[ -e $output/$one && ! -e $earlier/$one ]]; then mv "$output/$one" "$earlier/" || exit; fi
    done
    WRITING=''
    say "the earlier data, ${FOUND[*]} are kept in $earlier: --output $earlier goes on with them; checkpoints that you made of those models yourself, as by pruning, go with its data-bin"
}

# take_results_back: where data that were set aside were made again, as by the command of before
take_results_back() {
    local earlier one
    [[ ${TEXT_BY_OPTIONS-0} == 1 ]] || return 0
    for earlier in "$output"/replaced-*; do
        found_results "$output"
        # With a lock it has become somebody's --output
        if ((${#FOUND[@]} > 0)) || [[ ! -d $earlier/data-bin || -e $earlier/.lock ]]; then continue; fi
        diff -rq -x .done -x preprocess.log "$earlier/data-bin" "$output/data-bin" >/dev/null || continue
        diff -rq -x .done "$earlier/text" "$output/text" >/dev/null 2>&1 || continue
        found_results "$earlier"
        for one in "${FOUND[@]}"; do mv "$earlier/$one" "$output/"; done
        rm -rf "$earlier"
        say "these are the data of $earlier: ${FOUND[*]} are back in $output"
    done
}

# --- archives ----------------------------------------------------------------

corpora=${CORPORA:-$ROOT/examples/corpora.tsv}
[[ -f $corpora ]] || usage_error "CORPORA is '$corpora', and there is no such file"

declare -A VERIFIED=() # archive to its place, once it was checked

# have FILE: sets ARCHIVE_PATH, after downloading the archive where needed
have() {
    local file=$1 folder before=$WRITING
    if [[ -z ${VERIFIED[$file]-} ]]; then
        WRITING=$output/raw
        python3 "$TOOLS/downloads.py" have "$corpora" "$file" ${RAW_DIR:+"$RAW_DIR"} "$output/raw" || exit
        WRITING=$before
        for folder in "$output/raw" ${RAW_DIR:+"$RAW_DIR"}; do
            if [[ -f $folder/$file ]]; then VERIFIED[$file]=$folder/$file; fi
        done
    fi
    ARCHIVE_PATH=${VERIFIED[$file]}
}

# add SPLIT ARCHIVE MEMBER [OPTION...]: appends the pairs of a corpus to a split. In MEMBER,
# {lang} stands for a language and {role} for src or ref; what follows '!' is the name of a
# file inside an archive inside the archive.
add() {
    local split=$1 member=$3
    have "$2"
    python3 "$TOOLS/corpora.py" pairs "$ARCHIVE_PATH" "$member" "$SOURCE" "$TARGET" \
        "$output/text.tmp/$split" "${@:4}" || die "cannot take $split from $2: the message is above"
}
