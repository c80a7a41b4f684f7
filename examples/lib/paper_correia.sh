# What the recipes of Correia et al. (2019), "Adaptively Sparse Transformers", section 4, share:
# Transformer base, joint BPE of 32k merges, batches of 8,192 tokens, a warm-up of 20,000 updates
# and then the inverse square root, training until validation accuracy converges. A dataset.sh sets
# EVALUATE_EVERY, in updates, and sources this.
#
# ../iwslt17_de_en/README.md says what the paper leaves open. The peak rate is (512 * 20,000)^-0.5.

SUBWORDS=joint:32000
BATCH_TOKENS=8192
LENGTH=200000 # at most: ten evaluations without a better one end it
MODEL=(--arch entmax_transformer_wmt_en_de --share-all-embeddings --dropout 0.1)
TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)'
    --lr 0.0003125 --lr-scheduler inverse_sqrt --warmup-updates 20000
    --report-accuracy --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
    --validate-interval-updates "$EVALUATE_EVERY" --save-interval-updates "$EVALUATE_EVERY"
    --keep-interval-updates 1 --validate-interval 1000000 --save-interval 1000000
    --patience 10)
