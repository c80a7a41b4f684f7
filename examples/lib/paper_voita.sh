# What the recipes of Voita et al. (2019), "Analyzing Multi-Head Self-Attention", appendix A,
# share: Transformer base, separate BPE of about 32,000 types, batches of about 16,000 source
# tokens, Adam with the betas of Vaswani et al., pruning that starts from the converged model.
# The rest follows the scripts that the authors published (../wmt_en_ru/README.md): the learning rate
# rises to 4 * (512 * 16,000)^-0.5.

SUBWORDS=separate:32000
MAX_WORDS=200
BATCH_TOKENS=16000 MOST_TOKENS=4000
LENGTH=200000 # at most: twenty evaluations without a better one end it
GENERATION=(--beam 4 --lenpen 0.6)
MODEL=(--arch entmax_transformer_wmt_en_de
    --encoder-normalize-before --decoder-normalize-before
    --dropout 0.1 --attention-dropout 0.1 --activation-dropout 0.1)
TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-9
    --lr 0.0014 --lr-scheduler inverse_sqrt --warmup-updates 16000
    --validate-interval-updates 2000 --save-interval-updates 2000
    --keep-interval-updates 1 --validate-interval 1000000 --save-interval 1000000
    --patience 20)

PRUNE_LAYERS=6 PRUNE_HEADS=8
SEARCH_UPDATES=30000 RECOVERY_UPDATES=60000
prune_schedules() { two_phases 0.0003 0.0006; }
