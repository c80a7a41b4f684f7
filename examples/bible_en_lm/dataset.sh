# The English side of the Bible verses that come with the project; see README.md.

source "$ROOT/examples/lib/lm.sh"
# The split of bible_es_en, so that both have the same test verses
source "$ROOT/examples/bible_es_en/corpus.sh"
SUBWORDS=sentencepiece:2000

BATCH_TOKENS=1024 MOST_TOKENS=1024 BLOCK_TOKENS=256
LENGTH=2048 # two epochs, of 1,024 updates each
RISES=1 DECAYS=1
MODEL=(--decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 512
    --decoder-attention-heads 4 --share-decoder-input-output-embed --dropout 0)
TRAINING=(--criterion cross_entropy
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 0.004 --lr-scheduler polynomial_decay --warmup-updates 200)

EVALUATIONS=('verses --sample-break-mode eos'
    'blocks --sample-break-mode none'
    'window --sample-break-mode none --context-window 192')

PRUNE_LAYERS=2 PRUNE_HEADS=4
PRUNE_BUDGETS=all=4
PRUNE_SCORES=verses,blocks,window
SEARCH_UPDATES=600 RECOVERY_UPDATES=1200
prune_criterion() { echo cross_entropy_with_head_l0; }
prune_schedules() { two_phases 0.001 0.002; }
