# What the recipes with 30,000 pairs share, so that their models differ only in the data: small
# Transformers that a CPU trains in minutes, and a larger one to prune. Before it sources this, a
# dataset.sh sets LENGTH, in epochs, and EPOCH_UPDATES, about how many updates of 625 tokens an epoch has.

TOKENIZER=none
# Pieces in the subword model of both languages, which prepare.sh trains
BPE_SIZE=${BPE_SIZE:-4000}
require_positive_integer BPE_SIZE "$BPE_SIZE"
SUBWORDS=sentencepiece:$BPE_SIZE
BATCH_TOKENS=${BATCH_TOKENS:-625}
require_positive_integer BATCH_TOKENS "$BATCH_TOKENS"
MOST_TOKENS=$BATCH_TOKENS
EPOCH_UPDATES=$((EPOCH_UPDATES * 625 / BATCH_TOKENS))
LENGTH_UNIT=epochs RISES=1 DECAYS=1
MODEL=(--arch entmax_transformer --encoder-layers 2 --decoder-layers 2
    --encoder-embed-dim 128 --decoder-embed-dim 128
    --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256
    --encoder-attention-heads 4 --decoder-attention-heads 4
    --encoder-normalize-before --decoder-normalize-before
    --share-decoder-input-output-embed --dropout 0)
TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)'
    --lr 0.0035 --lr-scheduler polynomial_decay --warmup-updates 600)

PRUNE_LAYERS=3 PRUNE_HEADS=8
PRUNE_BUDGETS=all=48,all=24,encoder=12,encoder=4
PRUNE_MODEL=(--encoder-layers 3 --decoder-layers 3
    --encoder-attention-heads 8 --decoder-attention-heads 8)
SEARCH_UPDATES=$EPOCH_UPDATES RECOVERY_UPDATES=$((2 * EPOCH_UPDATES))
prune_schedules() {
    from_scratch=(--lr 0.003)
    two_phases 0.0015 "${RECOVERY_LR:-0.003}" # of further training, also with all heads
}
