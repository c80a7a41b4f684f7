#!/usr/bin/env bash
# Trains a small transformer with the given attention mapping on the bible_es_en data.
#
#   train.sh [options] MAPPING [options of fairseq-train]
#
#   MAPPING        softmax, sparsemax, entmax15, entmax, entmax:alpha=1.33, ...
#   --output DIR   where prepare.sh wrote its data (default: quickstart/ in the project's
#                  folder); the run goes to DIR/runs/
#   --epochs N     epochs to train (default: 7)
#   --name NAME    the run's folder in DIR/runs/ (default: <mapping>-<N>epochs)
#   --cpu, --gpu   where to train (default: a GPU where torch finds one, else the CPU)
#   --help         this text
#
# Needs fairseq-train and fairseq-entmax on PATH. Can be run again: an interrupted
# training goes on from its last epoch, a finished one is skipped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/common.sh
source "$here/../common.sh"

parse_run_options "$(cd "$here/../.." && pwd)/quickstart" "$@"
for option in ${REST[@]+"${REST[@]}"}; do
    case $option in
    --save-dir* | --restore-file*) usage_error "option ${option%%=*} is set by the recipe: choose the folder by --output and --name" ;;
    --max-epoch*) usage_error "option ${option%%=*} is set by the recipe: give --epochs N before the mapping" ;;
    --attn-mapping*) usage_error "option ${option%%=*} is set by the recipe: the mapping is the first word after the recipe's own options" ;;
    --cpu) usage_error "option --cpu stands after the mapping: give it before the mapping" ;;
    esac
done

# A trained model to start from is part of the settings, by its content
start_model=
for ((i = 0; i < ${#REST[@]}; i++)); do
    case ${REST[i]} in
    --finetune-from-model=*) start_model=${REST[i]#*=} ;;
    --finetune-from-model) start_model=${REST[i + 1]-} ;;
    esac
done
[[ -z $start_model || -f $start_model ]] ||
    usage_error "option --finetune-from-model got '$start_model': there is no such file"

require_commands python3 fairseq-train fairseq-entmax
hold_lock "$OUTPUT"
[[ -f $OUTPUT/data-bin/.done ]] || die "no data in $OUTPUT/data-bin: run prepare.sh --output '$OUTPUT' first"
device=$(choose_device "$DEVICE")
[[ -d $RUN ]] || require_known_mapping "the mapping" "$MAPPING"

model=(--arch entmax_transformer --attn-mapping "$MAPPING"
    --encoder-layers 2 --decoder-layers 2
    --encoder-embed-dim 128 --decoder-embed-dim 128
    --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256
    --encoder-attention-heads 4 --decoder-attention-heads 4
    --encoder-normalize-before --decoder-normalize-before
    --share-all-embeddings --dropout 0.1)
# Batches are made anew for each epoch, from its number: otherwise fairseq keeps those of
# the epoch that the process began with, and a resumed training takes another course.
# With a batch size multiple above 1 (its default is 8) current fairseq leaves out the
# sentences left over at the end, the longest, in validation too, without a word.
optimisation=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)'
    --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 400
    --max-tokens 1250 --required-batch-size-multiple 1
    --update-epoch-batch-itr True
    --max-epoch "$EPOCHS" --seed 1)

# --- the run's folder belongs to exactly these settings ----------------------

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/*.bin "$OUTPUT"/data-bin/*.idx)
settings=$(
    printf 'device: %s\ndata: %s\noptions:' "$device" "$data"
    printf ' %q' "${model[@]}" "${optimisation[@]}" ${REST[@]+"${REST[@]}"}
    [[ -z $start_model ]] || printf '\nstarts from: %s' "$(sha256_of "$start_model")"
)
checkpoints=$RUN/checkpoints
if [[ -d $checkpoints && ! (-f $RUN/settings.txt && $(<"$RUN/settings.txt") == "$settings") ]]; then
    set_aside "$RUN" "settings or data of $(basename "$RUN") have changed"
fi
mkdir -p "$RUN"
write_whole "$RUN/settings.txt" printf '%s\n' "$settings"

step=$(fingerprint train "$settings")
if is_done "$RUN/.train.done" "$step" && checkpoint_is_whole "$checkpoints/checkpoint_best.pt"; then
    say "train $(basename "$RUN"): done before"
    exit 0
fi
rm -f "$RUN/.train.done"

if ! mend_checkpoints "$checkpoints"; then
    set_aside "$RUN" "the checkpoints of $(basename "$RUN") are damaged"
    mkdir -p "$RUN"
    write_whole "$RUN/settings.txt" printf '%s\n' "$settings"
fi
mkdir -p "$checkpoints"

# --- train, or go on training ------------------------------------------------

if [[ -f $checkpoints/checkpoint_last.pt ]]; then
    say "train $(basename "$RUN") on $device: goes on from its last finished epoch"
else
    say "train $(basename "$RUN") on $device: $EPOCHS epochs"
fi
on_device=(--distributed-world-size 1)
if [[ $device == cpu ]]; then on_device+=(--cpu); fi
user_dir=$(fairseq-entmax user-dir)

status=0
fairseq-train "$OUTPUT/data-bin" --user-dir "$user_dir" \
    --task translation --source-lang es --target-lang en \
    "${model[@]}" "${optimisation[@]}" ${REST[@]+"${REST[@]}"} "${on_device[@]}" \
    --save-dir "$checkpoints" --no-epoch-checkpoints \
    --num-workers 0 --log-format simple --log-interval 50 \
    2>&1 | tee -a "$RUN/train.log" || status=${PIPESTATUS[0]}
if ((status != 0)); then
    printf 'train.sh: error: fairseq-train ended with status %s; its messages are above and in %s\n' \
        "$status" "$RUN/train.log" >&2
    exit "$status"
fi
[[ -f $checkpoints/checkpoint_best.pt ]] ||
    die "fairseq-train wrote no checkpoint_best.pt, so the validation loss was never a number: lower --lr and see $RUN/train.log"
mark_done "$RUN/.train.done" "$step"
say "trained: $checkpoints/checkpoint_best.pt"
