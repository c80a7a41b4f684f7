# claims.sh: tests the papers' claims on models trained here, from data to a table with a verdict on
# each claim.

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"

# All models are trained on this corpus. The others show whether a finding holds beyond it.
WHOLE_CORPUS=bible_es_en
MODELS=softmax,entmax,entmax15,sparsemax,cross-sparsemax,cross-fusedmax,cross-oscarmax,cross-sqpnormmax,sparse-encoder
MODELS+=,fusedmax,oscarmax,entmax-tv
# The same mappings, with alpha rising in the first half of the updates
MODELS+=,rise50-entmax,rise50-entmax15,rise50-sparsemax,rise50-fusedmax,rise50-oscarmax,rise50-entmax-tv,rise50-sqpnormmax
ONLY_SMALL='cross-*|sparse-encoder|*fusedmax|*oscarmax|*-tv|*sqpnormmax'
MOST_ON_GPU=4

claims_help() {
    print_head_comment "$0"
    cat <<TEXT

  claims.sh [options]

  --seeds LIST     comma-separated seeds (default: 1,2,3; with --quick: 1)
  --corpora LIST   comma-separated recipes (default: $WHOLE_CORPUS,debian_en_de; with --quick: $WHOLE_CORPUS)
  --models LIST    any of $MODELS
                   (default: all, at size large those without structure), or rise75-… and the like
  --sizes LIST     small (the recipe's model), large (that of its prune.sh) (default: both)
  --epochs N       epochs of training from scratch (default: as in the recipe, here
                   $LENGTH). The learning rate falls to 0 at the end
  --quick          a trial of every step with few verses and updates, in minutes: its verdicts
                   mean nothing
  --jobs N         how many models to train at once, on one thread each (default: one per core;
                   on a GPU at most $MOST_ON_GPU)
  --output DIR     where to write (default: claims/ in the project's folder; with --quick
                   claims/quick/): claims.md, record/, logs/ and a folder for each corpus
  --record DIR     where to record the results of each run (default: record/ in DIR of --output).
                   Recorded runs are not repeated, wherever they were made
  --cpu, --gpu     device (default: a GPU if torch finds one, else the CPU)
  --help           this text

Can be stopped at any time and run again with the same options: it resumes where it stopped. If a
model fails, the others continue.
TEXT
}

# require_some OPTION VALUE ALLOWED, where rise50 stands for any percentage
require_some() {
    local one
    for one in ${2//,/ }; do
        [[ ,$3, == *,"$(sed -E 's/^rise[1-9][0-9]*-/rise50-/' <<<"$one")",* ]] || usage_error "option $1 got '$one': give any of ${3//,/, }"
    done
}

seeds='' corpora='' models=$MODELS sizes=large,small quick='' jobs='' output='' record='' device=auto
while (($# > 0)); do
    case $1 in
    --seeds) require_value "$1" $# && seeds=$2 && shift ;;
    --corpora) require_value "$1" $# && corpora=$2 && shift ;;
    --models) require_value "$1" $# && require_some "$1" "$2" "$MODELS" && models=$2 && shift ;;
    --sizes) require_value "$1" $# && require_some "$1" "$2" small,large && sizes=$2 && shift ;;
    --epochs) require_value "$1" $# && require_positive_integer "$1" "$2" && export CLAIMS_EPOCHS=$2 && shift ;;
    --jobs) require_value "$1" $# && require_positive_integer "$1" "$2" && jobs=$2 && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") && shift ;;
    --record) require_value "$1" $# && require_plain_path "$1" "$2" && record=$(absolute_path "$2") && shift ;;
    --quick) quick=--quick ;;
    --cpu | --gpu) device=${1#--} ;;
    --help | -h) claims_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --seeds, --corpora, --models, --sizes, --epochs, --quick, --jobs, --output, --record, --cpu, --gpu or --help" ;;
    esac
    shift
done
if [[ -n $quick ]]; then
    seeds=${seeds:-1} corpora=${corpora:-$WHOLE_CORPUS} output=${output:-$ROOT/claims/quick}
    # A little of everything
    export CLAIMS_QUICK=1 TRIAL_PAIRS=240,16,12 GENERATION_OPTIONS='--max-len-b 20'
fi
seeds=${seeds:-1,2,3} corpora=${corpora:-$WHOLE_CORPUS,debian_en_de} output=${output:-$ROOT/claims}
record=${record:-$output/record}
[[ $seeds =~ ^[0-9]{1,9}(,[0-9]{1,9})*$ ]] || usage_error "option --seeds got '$seeds': give whole numbers, such as 1,2,3"
for list in seeds corpora models sizes; do
    twice=$(tr , '\n' <<<"${!list}" | sort | uniq -d)
    [[ -z $twice ]] || usage_error "option --$list has '${twice%%$'\n'*}' twice: remove one of them"
done
for corpus in ${corpora//,/ }; do
    grep -qs lib/small_translation.sh "$ROOT/examples/$corpus/dataset.sh" ||
        usage_error "option --corpora got '$corpus': give $WHOLE_CORPUS or debian_en_de, the recipes with small models"
done
require_commands python3 fairseq-preprocess fairseq-train fairseq-generate fairseq-entmax sacrebleu
python3 -c 'import diptest, scipy' || die "a package is missing: run pip install 'fairseq-entmax[analysis]'"
device=$(choose_device "$device")
if [[ -z $jobs ]]; then
    jobs=$(cores)
    if [[ $device == gpu ]] && ((jobs > MOST_ON_GPU)); then jobs=$MOST_ON_GPU; fi
fi

hold_lock "$output"
mkdir -p "$output/logs"
python3 "$TOOLS/claims_record.py" about "$record" --corpora "$corpora" $quick ${CLAIMS_EPOCHS:+--epochs "$CLAIMS_EPOCHS"}

# job CORPUS KIND MODEL SIZE SEED: prints the arguments of claims_job.sh
job() { printf '%s\0' "$ROOT/examples/$1" "$output/$1" "$record/$1" "$device" "${@:2}"; }

# run_jobs: runs the jobs listed on standard input, several at once, with one thread each
run_jobs() {
    OMP_NUM_THREADS=1 xargs -0 -r -P "$jobs" -n 8 "$ROOT/examples/lib/claims_job.sh" "$output/logs" ||
        die "some jobs failed, for the reasons above: the same command tries them again"
}

for corpus in ${corpora//,/ }; do
    "$ROOT/examples/$corpus/prepare.sh" --output "$output/$corpus" --workers "$jobs" ||
        die "the data of $corpus could not be prepared, for the reason above: run again when they are available, or leave them out with --corpora $WHOLE_CORPUS"
    [[ -n $quick ]] || job "$corpus" parse - - 1 | run_jobs
    [[ -n $quick || -f $output/$corpus/test.conllu ]] || say "no parses of $corpus: claims about syntax will not be measured there"
done
say "models: $jobs at once on $device; logs are in $output/logs"
# Large models first: they take longer, and more jobs depend on them
for seed in ${seeds//,/ }; do
    for corpus in ${corpora//,/ }; do
        for model in ${models//,/ }; do
            if [[ ,$sizes, == *,large,* && $model != @($ONLY_SMALL) ]]; then job "$corpus" model "$model" large "$seed"; fi
        done
        [[ ,$sizes, == *,small,* ]] || continue
        for model in ${models//,/ }; do
            [[ $corpus != "$WHOLE_CORPUS" && $model == @(cross-*|sparse-encoder) ]] ||
                job "$corpus" model "$model" small "$seed"
        done
    done
done | run_jobs
# Speed is measured last, when nothing else runs
for corpus in ${corpora//,/ }; do job "$corpus" speed - - "${seeds%%,*}"; done | jobs=1 run_jobs
PYTHONPATH=$TOOLS${PYTHONPATH:+:$PYTHONPATH} python3 -m claims "$record" --output "$output"
say "verdicts: $output/claims.md"
