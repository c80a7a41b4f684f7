# Stanford Natural Language Inference, Bowman et al. (2015), as Niculae and Blondel (2017) use it.

source "$ROOT/examples/lib/classifiers.sh"

INPUTS=(input0 input1)
ARCHIVES=(snli_1.0.zip)
SPLITS_FROM=("$(sha256_of "$TOOLS/entailment.py")")
splits() {
    have snli_1.0.zip
    python3 "$TOOLS/entailment.py" "$ARCHIVE_PATH" "$1"
}

TOKENIZER=none # the corpus comes with its words
SUBWORDS=words:30000

BATCH_TOKENS=8192 MOST_TOKENS=8192
LENGTH=10
MODEL=(--arch entmax_roberta --encoder-layers 2 --encoder-embed-dim 256 --encoder-ffn-embed-dim 512
    --encoder-attention-heads 4 --dropout 0.2)
TRAINING=("${SELECTION[@]}"
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000)

MODELS=(softmax sparsemax fusedmax oscarmax)

SEARCH_UPDATES=3000 RECOVERY_UPDATES=6000
prune_schedules() { two_phases 0.0002 0.0004; }
