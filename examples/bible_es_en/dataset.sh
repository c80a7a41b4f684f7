# Spanish-English Bible verses that come with the project; see README.md.
#
# shellcheck shell=bash disable=SC2034

SOURCE=es TARGET=en
TOKENIZER=none
SUBWORDS=sentencepiece:2000
# The quickstart's folder has this recipe's data
DEFAULT_OUTPUT=$ROOT/quickstart

# shellcheck source=examples/bible_es_en/corpus.sh
source "$ROOT/examples/bible_es_en/corpus.sh"

BATCH_TOKENS=1250 MOST_TOKENS=1250
LENGTH_UNIT=epochs LENGTH=7
MODEL=(--arch entmax_transformer --encoder-layers 2 --decoder-layers 2
    --encoder-embed-dim 128 --decoder-embed-dim 128
    --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256
    --encoder-attention-heads 4 --decoder-attention-heads 4
    --encoder-normalize-before --decoder-normalize-before
    --share-all-embeddings --dropout 0.1)
TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)'
    --lr 0.005 --lr-scheduler inverse_sqrt --warmup-updates 400)

PRUNE_LAYERS=3 PRUNE_HEADS=8
PRUNE_BUDGETS=all=48,all=24,encoder=12,encoder=4
PRUNE_UPDATES=1030 # an epoch has this many
TUNING_WARMUP=49   # of a thousand: the learning rate rises in 50 updates of these
PRUNE_MODEL=(--encoder-layers 3 --decoder-layers 3
    --encoder-attention-heads 8 --decoder-attention-heads 8)
prune_schedules() {
    from_scratch=(--lr 0.004 --lr-scheduler polynomial_decay
        --total-num-update $((LENGTH * PRUNE_UPDATES)))
    fine_tuning=(--lr 0.002 --lr-scheduler polynomial_decay
        --warmup-updates $((PRUNE_UPDATES * TUNING_WARMUP / 1000)) --total-num-update "$PRUNE_UPDATES")
    tuning_length=1
}
