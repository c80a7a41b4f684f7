#!/usr/bin/env bash
# Makes a trained model sparse and uses it: pretrains a small RoBERTa of fairseq on masked words of the
# verses, trains it further with dense and with sparse attention, fine-tunes it to tell testaments apart,
# and prunes half of its heads. Run prepare.sh first. Takes some 35 minutes on one free core.
#
#   pretrained.sh [--output DIR]
#
# Can be run again: finished steps are skipped, and a stopped training resumes. UPDATES=1200,400,300 in
# the environment are the updates of pretraining, of training further, and of each training on testaments.
source "$(dirname "$0")/../lib/recipe.sh"
source "$ROOT/examples/lib/run.sh"

OUTPUT=$DEFAULT_OUTPUT
while (($# > 0)); do
    case $1 in
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$(absolute_path "$2") && shift ;;
    --help | -h) print_head_comment "$0" && exit 0 ;;
    *) usage_error "unknown option '$1': use --output or --help" ;;
    esac
    shift
done
FOLDER=$OUTPUT/pretrained
UPDATES=${UPDATES:-1200,400,300}
[[ $UPDATES =~ ^[1-9][0-9]*(,[1-9][0-9]*){2}$ ]] || usage_error "UPDATES is '$UPDATES': give three numbers, such as 1200,400,300"
IFS=, read -r pretraining further tuning <<<"$UPDATES"
require_commands python3 fairseq-train fairseq-entmax
require_data "$OUTPUT"
hold_lock "$OUTPUT"
user_dir=$(fairseq-entmax user-dir)

SIZES=(--encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4)
MASKED=(--task masked_lm --criterion masked_lm --sample-break-mode eos --tokens-per-sample 512)
LABELLED=("${TASK[@]}" --num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")")

# train NAME UPDATES RATE START DATA OPTION...: makes FOLDER/NAME/checkpoint_last.pt; a START of - is from scratch
train() {
    local name=$1 updates=$2 rate=$3 start=$4 from=() step
    if [[ $start != - ]]; then from=(--finetune-from-model "$FOLDER/$start/checkpoint_last.pt"); fi
    local options=(--max-update "$updates" --lr "$rate" --lr-scheduler polynomial_decay
        --total-num-update "$updates" --warmup-updates $((updates / 10)) "${from[@]}" "${@:6}")
    step=$(fingerprint "$SEED" "$BATCH_TOKENS" "${SIZES[@]}" "${options[@]}" "$(files_fingerprint "$OUTPUT"/data-bin/{input0,label}/train.bin ${from[1]+"${from[1]}"})")
    mkdir -p "$FOLDER/$name"
    # Start again if the settings changed
    [[ ! -f $FOLDER/$name/.begun || $(<"$FOLDER/$name/.begun") == "$step" ]] || rm -f "$FOLDER/$name"/*
    mark_done "$FOLDER/$name/.begun" "$step"
    once "train $name: $updates updates" "$FOLDER/$name/.done" "$step" "$FOLDER/$name/checkpoint_last.pt" -- \
        logged "$FOLDER/$name/train.log" fairseq-train "$OUTPUT/data-bin/${5#.}" --user-dir "$user_dir" \
        "${SIZES[@]}" "${options[@]}" \
        --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --weight-decay 0.01 --seed "$SEED" --cpu \
        --max-tokens "$BATCH_TOKENS" --required-batch-size-multiple 1 --num-workers 0 --no-epoch-checkpoints \
        --validate-interval 3 --log-format simple --log-interval 50 --save-dir "$FOLDER/$name"
}

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # as in train.sh
train dense "$pretraining" 0.001 - input0 --arch roberta --max-positions 512 "${MASKED[@]}"
for mapping in softmax sparsemax entmax; do
    ours=(--arch entmax_roberta --attn-mapping "$mapping")
    train "$mapping" "$further" 0.0005 dense input0 "${ours[@]}" --max-positions 512 "${MASKED[@]}" \
        --alpha-warmup-updates $((further * 3 / 4))
    train "$mapping-tuned" "$tuning" 0.0005 "$mapping" . "${ours[@]}" "${LABELLED[@]}" --criterion sentence_prediction
done
for mapping in softmax sparsemax; do
    ours=(--arch entmax_roberta --attn-mapping "$mapping")
    train "$mapping-gated" "$tuning" 0.0003 "$mapping-tuned" . "${ours[@]}" "${LABELLED[@]}" \
        --criterion sentence_prediction_with_head_l0 --head-gates encoder-self --target-heads 4 \
        --decide-heads-at $((tuning * 3 / 4))
    mkdir -p "$FOLDER/$mapping-pruned"
    small=$FOLDER/$mapping-pruned/checkpoint_last.pt gated=$FOLDER/$mapping-gated/checkpoint_last.pt
    once "prune $mapping" "$FOLDER/$mapping-pruned/.done" "$(files_fingerprint "$gated")" "$small" -- \
        fairseq-entmax prune "$gated" --output "$small" --overwrite
done

names=({softmax,sparsemax,entmax}-tuned {softmax,sparsemax}-pruned)
models=("${names[@]/%//checkpoint_last.pt}") && models=("${models[@]/#/$FOLDER/}")
predictions=("${names[@]/%//test.predictions.jsonl}") && predictions=("${predictions[@]/#/$FOLDER/}")
step=$(files_fingerprint "${models[@]}" "$TOOLS"/{predictions,accuracy}.py)

classify() {
    local number
    for number in "${!names[@]}"; do
        write_atomically "${predictions[number]}" python3 "$TOOLS/predictions.py" write "${models[number]}" "$OUTPUT/data-bin"
    done
    write_atomically "$FOLDER/accuracy.tsv" accuracy_of "${predictions[@]}" --names "${names[@]}"
}
once "classify the test verses" "$FOLDER/.classify.done" "$step" "$FOLDER/accuracy.tsv" -- classify

measure() {
    write_atomically "$FOLDER/speed.tsv" python3 "$TOOLS/predictions.py" speed "$OUTPUT/data-bin" "${models[@]}"
    fairseq-entmax analyze "$OUTPUT/data-bin" "${TASK[@]}" --gen-subset test --path "$(joined : "${models[@]}")" \
        --names "$(joined , "${names[@]}")" --output "$FOLDER/heads" --overwrite --num-workers 0 --cpu
    fairseq-entmax report "$FOLDER/heads/analysis.json" --output "$FOLDER/heads/report.html" --overwrite
}
once "what every head does, and the speed of the models" "$FOLDER/.measure.done" "$step" "$FOLDER"/{speed.tsv,heads/report.html} -- measure
python3 "$TOOLS/tables.py" "$FOLDER/accuracy.tsv"
python3 "$TOOLS/tables.py" "$FOLDER/speed.tsv"
say "report, to open in a browser: $FOLDER/heads/report.html"
