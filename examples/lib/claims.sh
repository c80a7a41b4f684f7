# claims.sh: holds the papers' claims against models that are trained here, from data to a table with
# a verdict for each.
#
# A recipe's dataset.sh may say, beside what recipe.sh and prune.sh list:
#
#   CLAIMS_LENGTH     the default of --epochs
#
# shellcheck shell=bash

# shellcheck source=examples/lib/recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

BOTH_CORPORA=bible_es_en,debian_en_de
# Without need of a network: what --quick does where nothing else is asked for
QUICK_CORPUS=bible_es_en
MOST_ON_GPU=4

claims_help() {
    print_head_comment "$0"
    cat <<TEXT

  claims.sh [options]

  --seeds LIST     with commas between them (default: 1,2,3; with --quick: 1)
  --more-seeds LIST  further seeds of what the claims are most about, for narrower intervals: softmax,
                   entmax and entmax15 at size large on $QUICK_CORPUS, the first two pruned to all=24,
                   trained with these heads from scratch, and continued (default: none)
  --corpora LIST   recipes (default: $BOTH_CORPORA; with --quick: $QUICK_CORPUS)
  --models LIST    softmax, entmax, entmax15, sparsemax, and at size small alone cross-sparsemax,
                   cross-fusedmax, cross-oscarmax, cross-sqpnormmax, sparse-encoder (default: all)
  --sizes LIST     small (the recipe's model), large (that of its prune.sh) (default: both)
  --epochs N       how long a model is trained from scratch (default: as the recipe says, here
                   ${CLAIMS_LENGTH:-8}). The learning rate falls to 0 by then; the table says how much the
                   validation loss still fell in the last epoch, the record in the last quarter
  --patience N     end a training after N validations without a lower loss (default: 0, never: an
                   end before the rate is 0 makes schedules differ)
  --quick          a trial of all of it, with few verses and updates, in minutes: nothing can be
                   concluded from it
  --jobs N         how many jobs run at once, on one thread each (default: one for each core; on a
                   GPU at most $MOST_ON_GPU)
  --output DIR     where to write (default: claims/ in the project's folder; with --quick
                   claims/quick/): claims.md, record/, and a folder for each corpus
  --record DIR     where what is kept of each run goes (default: record/ in DIR of --output); files
                   of runs that are not asked for are moved from there to not-in-record/ in DIR of --output
  --add            keep what the record has as it is, without its models, and add to it what else is
                   asked for: so a record that was made elsewhere, such as the one that comes with
                   the project, gains seeds, models or a corpus
  --cpu, --gpu     where to work (default: a GPU where torch finds one)
  --help           this text

Can be stopped at any time, in any way, and run again with the same options: it goes on where it
stopped. A job that fails lets those go on that do not need it. Logs are in DIR/jobs/logs.
TEXT
}

# require_list OPTION VALUE
require_list() {
    [[ $2 =~ ^[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*$ ]] ||
        usage_error "option $1 got '$2': give names or numbers with commas between them"
}

# require_number OPTION VALUE
require_number() {
    [[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] ||
        usage_error "option $1 got '$2': give a whole number of at least 0, such as $1 5"
}

seeds='' more_seeds='' corpora='' quick=0 jobs='' output='' record='' device=auto
chosen=()
while (($# > 0)); do
    case $1 in
    --seeds | --more-seeds | --corpora | --models | --sizes) require_value "$1" $# && require_list "$1" "$2" ;;&
    --patience) require_value "$1" $# && require_number "$1" "$2" ;;&
    --epochs | --jobs) require_value "$1" $# && require_positive_integer "$1" "$2" ;;&
    --output | --record) require_value "$1" $# && require_plain_path "$1" "$2" ;;&
    --seeds) seeds=$2 && shift ;;
    --more-seeds) more_seeds=$2 && shift ;;
    --corpora) corpora=$2 && shift ;;
    --models | --sizes) chosen+=("$1" "$2") && shift ;;
    --epochs) export CLAIMS_ASKED_EPOCHS=$2 && shift ;;
    --patience) export CLAIMS_ASKED_PATIENCE=$2 && shift ;;
    --jobs) jobs=$2 && shift ;;
    --output) output=$(absolute_path "$2") && shift ;;
    --record) record=$(absolute_path "$2") && shift ;;
    --quick) quick=1 ;;
    --add) chosen+=(--add) ;;
    --cpu) device=cpu ;;
    --gpu) device=gpu ;;
    --help | -h) claims_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --seeds, --more-seeds, --corpora, --models, --sizes, --epochs, --patience, --quick, --jobs, --output, --record, --add, --cpu, --gpu or --help" ;;
    esac
    shift
done

if ((quick)); then
    seeds=${seeds:-1} corpora=${corpora:-$QUICK_CORPUS} output=${output:-$ROOT/claims/quick}
    chosen+=(--quick)
    # Few of everything, and all kinds of it
    export TRIAL_PAIRS=240,16,12 GENERATION_OPTIONS='--max-len-b 20'
    export CLAIMS_ASKED_EPOCHS=${CLAIMS_ASKED_EPOCHS:-1}
    export CLAIMS_SEARCH_UPDATES=8 CLAIMS_RECOVERY_UPDATES=6
    export CLAIMS_PACE='--updates 2 --rounds 1'
    export CLAIMS_ABLATED='encoder-self:0.0;cross:1.2'
    export CLAIMS_ANALYSIS='--relevance-sentences 4 --gradient-sentences 4'
fi
seeds=${seeds:-1,2,3} corpora=${corpora:-$BOTH_CORPORA} output=${output:-$ROOT/claims}
record=${record:-$output/record}
IFS=, read -r -a names <<<"$corpora"
for name in "${names[@]}"; do
    [[ -x $ROOT/examples/$name/prepare.sh && -x $ROOT/examples/$name/prune.sh ]] ||
        usage_error "option --corpora got '$name', which is no recipe in examples/ that prunes: give --corpora $QUICK_CORPUS, or $BOTH_CORPORA"
done

require_commands python3 fairseq-preprocess fairseq-train fairseq-generate fairseq-entmax sacrebleu
asked=(--seeds "$seeds" ${more_seeds:+--more-seeds "$more_seeds"} --corpora "$corpora" --output "$output" --record "$record" ${chosen[@]+"${chosen[@]}"})
python3 "$TOOLS/claims_run.py" check "${asked[@]}" || exit
device=$(choose_device "$device")
if [[ -z $jobs ]]; then
    jobs=$(getconf _NPROCESSORS_ONLN)
    if [[ $device == gpu ]] && ((jobs > MOST_ON_GPU)); then jobs=$MOST_ON_GPU; fi
fi

hold_lock "$output"
WRITING=$output

# accounted PRODUCT COMMAND...: what it takes is counted in the record's hours
accounted() { python3 "$TOOLS/accounts.py" "$output/jobs/preparations" "$output/$1" -- "${@:2}"; }

for name in "${names[@]}"; do
    accounted "$name/data-bin/.done" "$ROOT/examples/$name/prepare.sh" --output "$output/$name" --workers "$jobs" ||
        die "the data of $name could not be prepared, its message is above: run again when they can be had, or without them by --corpora $QUICK_CORPUS"
    hold_another_lock "$output/$name"
    ((quick)) || RECIPE_LOCK=$output/$name accounted "$name/test.conllu" "$ROOT/examples/lib/claims_job.sh" \
        "$ROOT/examples/$name" "$output/$name" "$device" parse '' ''
done

# One thread each: as many jobs as cores
export OMP_NUM_THREADS=1
exec python3 "$TOOLS/claims_run.py" run "${asked[@]}" --jobs "$jobs" --device "$device"
