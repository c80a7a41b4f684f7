# WikiText-103, Merity et al. (2017), with the settings of Baevski and Auli (2019).
#
# Environment, for a trial: BLOCK_TOKENS is the length of the blocks of text, CONTEXT_WINDOW the
# number of tokens before a block that the model sees in evaluate.sh, PRUNE_LAYERS and PRUNE_HEADS the
# model's layers and heads, if options change the model.

source "$ROOT/examples/lib/lm.sh"

ARCHIVES=(wikitext-103-v1.zip)
splits() {
    local split
    for split in train valid test; do
        add_text "$split" wikitext-103-v1.zip "wikitext-103/wiki.$split.tokens"
    done
}
SUBWORDS=none # words, as the archive has them, <unk> among them

BLOCK_TOKENS=${BLOCK_TOKENS:-3072} CONTEXT_WINDOW=${CONTEXT_WINDOW:-2560}
require_positive_integer BLOCK_TOKENS "$BLOCK_TOKENS"
require_positive_integer CONTEXT_WINDOW "$CONTEXT_WINDOW"
((CONTEXT_WINDOW < BLOCK_TOKENS)) ||
    usage_error "CONTEXT_WINDOW is '$CONTEXT_WINDOW': give less than BLOCK_TOKENS, which is $BLOCK_TOKENS"
BATCH_TOKENS=$((24 * BLOCK_TOKENS)) MOST_TOKENS=$BLOCK_TOKENS
LENGTH=286000
ARCHITECTURE=_wiki103 # 16 layers of 8 heads, width 1,024; adaptive inputs and adaptive softmax, tied
MODEL=()
TRAINING=(--criterion adaptive_loss --ddp-backend legacy_ddp --skip-invalid-size-inputs-valid-test
    --optimizer nag --clip-norm 0.1
    --lr 1.0 --lr-scheduler cosine --t-mult 2 --lr-period-updates 270000 --lr-shrink 0.75
    --warmup-updates 16000 --warmup-init-lr 1e-07 --stop-min-lr 1e-09 --min-lr 0.0001)

EVALUATIONS=("window --sample-break-mode complete --context-window $CONTEXT_WINDOW --softmax-batch 1024")

PRUNE_LAYERS=${PRUNE_LAYERS:-16} PRUNE_HEADS=${PRUNE_HEADS:-8}
PRUNE_BUDGETS=all=64,all=32
PRUNE_SCORES=window
SEARCH_UPDATES=20000 RECOVERY_UPDATES=40000
prune_criterion() { echo adaptive_loss_with_head_l0; }
# The learning rate falls in a single period
prune_schedules() {
    local search=$((SEARCH_UPDATES / 20)) recovery=$((RECOVERY_UPDATES / 20))
    searching=(--lr 0.1 --warmup-updates "$search" --lr-period-updates $((SEARCH_UPDATES - search)))
    recovering=(--lr 0.2 --warmup-updates "$recovery" --lr-period-updates $((RECOVERY_UPDATES - recovery)))
}
