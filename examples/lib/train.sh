# train.sh of every recipe: trains a model with the given attention mapping.

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"

EXTRA_OPTIONS="--processes, --most-tokens, --nodes, --node-rank, --master, "

run_help() {
    print_head_comment "$RECIPE/dataset.sh"
    cat <<TEXT

Trains a model with the given attention mapping or name.

  train.sh [options] MAPPING [options of fairseq-train]

$(help_on_runs)

The batch of an update has $BATCH_TOKENS tokens, however many processes share it:

  --processes N    processes on this machine (default: one per GPU; on a CPU one, with one thread)
  --most-tokens N  the most tokens that a process takes at a time, limited by the memory of a GPU
                   (default: $MOST_TOKENS); --update-freq follows from it

On several machines, run it on each of them, with the same options and a DIR that they share:

  --nodes N          number of machines
  --node-rank R      number of this machine, counted from 0
  --master HOST:PORT a free port of the machine with rank 0

Can be run again: an interrupted training resumes from its last checkpoint, and a finished one is
skipped.
TEXT
}

parse_run_options "$@"
# The content of a model to start from, or to learn from, is part of the settings
declare -A models=()
before='' named=()
for option in "${REST[@]}"; do
    case $option in
    --save-dir* | --restore-file* | --max-epoch* | --max-update* | --max-tokens* | --update-freq* | --distributed-* | --attn-mapping* | \
        --output | --name | --epochs | --updates | --most-tokens | --processes | --nodes | --node-rank | --master | --cpu | --gpu)
        usage_error "option ${option%%=*} is set by the recipe: give the mapping, and before it --output, --name, --$LENGTH_UNIT, --most-tokens, --processes, --nodes, --cpu or --gpu"
        ;;
    --tokens-per-sample*) usage_error "option --tokens-per-sample is set by the recipe: change BLOCK_TOKENS in its dataset.sh" ;;
    --finetune-from-model=* | --teacher=*) models[${option%%=*}]=${option#*=} ;;
    *) if [[ $before == --@(finetune-from-model|teacher) ]]; then models[$before]=$option; else named+=("$option"); fi ;;
    esac
    before=$option
done
[[ $NODE_RANK =~ ^(0|[1-9][0-9]{0,5})$ && $((NODE_RANK < NODES)) == 1 ]] ||
    usage_error "option --node-rank got '$NODE_RANK': give a number from 0 to $((NODES - 1)), as --nodes is $NODES"
if ((NODES > 1)); then
    [[ $MASTER =~ ^[^:[:space:]]+:[1-9][0-9]{0,4}$ ]] ||
        usage_error "option --master got '$MASTER': give the host name and a free port of the machine with rank 0, such as node1:29500"
fi

for option in "${!models[@]}"; do
    [[ -f ${models[$option]} ]] || usage_error "option $option got '${models[$option]}': there is no such file"
done

require_commands python3 fairseq-train fairseq-entmax torchrun
require_data "$OUTPUT"
# Only the first machine manages the run's folder
if ((NODE_RANK == 0)); then hold_lock "$OUTPUT"; fi
device=$(choose_device "$DEVICE")

# --- the batch, shared by the processes --------------------------------------

if [[ -z $PROCESSES ]]; then
    PROCESSES=1
    if [[ $device == gpu ]]; then PROCESSES=$(python3 "$TOOLS/environment.py" gpus); fi
fi
lengths=("${SIDES[@]}")
if [[ -n ${BLOCK_TOKENS-} ]]; then lengths=(--block-tokens "$BLOCK_TOKENS"); fi
shared=$(python3 "$TOOLS/batches.py" "$OUTPUT/data-bin" "${lengths[@]}" --batch-tokens "$BATCH_TOKENS" \
    --most-tokens "$MOST_TOKENS" --processes "$PROCESSES" --nodes "$NODES") || exit
{
    read -r world update_freq max_tokens max_tokens_valid epoch_updates
    while read -r left_out; do say "$left_out"; done
} <<<"$shared"

# --- the run's folder belongs to exactly these settings ----------------------

model_options "$MAPPING"
options=("${MODEL[@]}" "${MODEL_OPTIONS[@]}")
updates=$LENGTH
if [[ $LENGTH_UNIT == epochs ]]; then updates=$((LENGTH * epoch_updates)); fi
has_option() { [[ " ${REST[*]-} " == *" $1"[\ =]* ]]; } # whether the user gave this option of fairseq-train
# Schedules that a user names have no such option, or their own
if [[ -n ${DECAYS-} ]] && ! has_option --lr-scheduler; then TRAINING+=(--total-num-update "$updates"); fi
# Attention becomes sparse by degrees, but not a second time when a trained model is trained further
[[ -z ${RISES-} ]] || has_option --alpha-warmup-updates || has_option --finetune-from-model ||
    TRAINING+=(--alpha-warmup-updates $((updates / 2)))
# Each epoch gets new batches, made from its number: otherwise fairseq keeps those of the
# epoch in which the process began, and a resumed training takes another course.
# With a batch size multiple above 1 (the default is 8), current fairseq silently leaves
# out the sentences left over at the end, the longest, in validation too.
options+=("${TRAINING[@]}" --required-batch-size-multiple 1 --update-epoch-batch-itr True --seed "$SEED"
    "--max-${LENGTH_UNIT%s}" "$LENGTH")

binary_files
data=$(files_fingerprint "${BINARY[@]}")
settings=$(
    printf 'data: %s\ntokens in a batch: %s\noptions:' "$data" "$BATCH_TOKENS"
    printf ' %q' "${options[@]}" "${named[@]}"
    [[ -z ${models[--finetune-from-model]-} ]] || printf '\nstarts from: %s' "$(sha256_of "${models[--finetune-from-model]}")"
    [[ -z ${models[--teacher]-} ]] || printf '\nlearns from: %s' "$(sha256_of "${models[--teacher]}")"
)
checkpoints=$RUN/checkpoints
step=$(fingerprint train "$settings")
run=${RUN##*/}

# A training may go on on another device
file=$RUN/settings.txt
if [[ ! -f $file || $(tail -n +2 "$file") != "$settings" ]]; then
    require_model "the mapping" "$MAPPING"
    if ((NODE_RANK == 0)); then
        if [[ -d $checkpoints ]]; then set_aside "$RUN" "settings or data of $run have changed"; fi
        mkdir -p "$RUN"
        write_atomically "$file" printf 'device: %s\n%s\n' "$device" "$settings"
    fi
fi
if is_done "$RUN/.train.done" "$step" && [[ -f $checkpoints/checkpoint_best.pt ]]; then
    say "train $run: already done"
    exit 0
fi
if ((NODE_RANK == 0)); then
    rm -f "$RUN/.train.done"
    mkdir -p "$checkpoints"
fi

# --- train, or go on training ------------------------------------------------

log=$RUN/train.log
how="$LENGTH $LENGTH_UNIT"
if [[ -f $checkpoints/checkpoint_last.pt ]]; then how="resumes from its last checkpoint"; fi
say "train $run on $device: $how; $world process(es), $update_freq x $max_tokens tokens each"

on_device=() log_interval=50
if [[ $device == cpu ]]; then
    on_device+=(--cpu)
    log_interval=$CPU_LOG_INTERVAL
    # Threads wait for each other in busy loops: on a core that is taken they are many times slower
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
fi
mkdir -p "$RUN"
if ((NODE_RANK > 0)); then log=$RUN/train.node$NODE_RANK.log; fi
on_device+=(--distributed-world-size "$world")
launcher=(fairseq-train)
if ((world > 1)); then
    # Each process is told its rank: fairseq's own detection counts GPUs
    on_device+=(--distributed-init-method env:// --distributed-no-spawn "${DISTRIBUTED[@]}")
    if [[ $device == cpu ]]; then
        on_device+=(--distributed-backend gloo --ddp-backend legacy_ddp)
    fi
    launcher=(torchrun --nproc-per-node "$PROCESSES" --nnodes "$NODES" --no-python)
    if ((NODES == 1)); then
        launcher+=(--standalone)
    else
        launcher+=(--node-rank "$NODE_RANK" --master-addr "${MASTER%:*}" --master-port "${MASTER##*:}")
    fi
    # shellcheck disable=SC2016 # expanded in each process
    launcher+=(bash -c 'exec "$@" --distributed-rank "$RANK" --device-id "$LOCAL_RANK"' worker fairseq-train)
fi
user_dir=$(fairseq-entmax user-dir)

run_with_progress "$log" "$LENGTH_UNIT" "$LENGTH" "${launcher[@]}" "$OUTPUT/data-bin" --user-dir "$user_dir" \
    "${TASK[@]}" \
    --num-workers 0 --log-format simple --log-interval "$log_interval" \
    "${options[@]}" "${REST[@]}" \
    --max-tokens "$max_tokens" --max-tokens-valid "$max_tokens_valid" --update-freq "$update_freq" "${on_device[@]}" \
    --save-dir "$checkpoints" --no-epoch-checkpoints
if ((NODE_RANK > 0)); then exit 0; fi
[[ -f $checkpoints/checkpoint_best.pt ]] ||
    die "fairseq-train wrote no checkpoint_best.pt, so the validation loss was never a finite number: lower --lr and see $log"
mark_done "$RUN/.train.done" "$step"
say "trained: $checkpoints/checkpoint_best.pt"
