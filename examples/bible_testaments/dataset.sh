# Classifies English Bible verses by testament, or by book, from the corpus that comes with the
# project; see README.md.
#
# Environment: EVERY=20 takes one verse in twenty, for a trial.

source "$ROOT/examples/lib/classifiers.sh"

CORPUS_FOLDER=$ROOT/examples/bible_es_en
CORPUS=$CORPUS_FOLDER/data/bible.es-en.tsv.xz
TEXT_BY_OPTIONS=1 # runs are of the labels that they were trained with
LABELS=testaments EVERY=${EVERY:-1}
require_positive_integer EVERY "$EVERY"
SPLITS_FROM=("$(files_fingerprint "$CORPUS" "$RECIPE/verses.py" "$CORPUS_FOLDER/split.py")" "$EVERY")

PREPARE_OPTIONS=', --labels'
PREPARE_HELP='  --labels WHAT  testaments or books; each needs a separate --output (default: testaments)
'
prepare_option() {
    [[ $1 == --labels ]] || return 1
    require_value "$1" "$2"
    [[ $3 == testaments || $3 == books ]] || usage_error "option --labels got '$3': give testaments or books"
    LABELS=$3
}
settle_dataset() { [[ $LABELS == testaments ]] || SPLITS_FROM+=("$LABELS"); }

splits() {
    PYTHONPATH=$CORPUS_FOLDER${PYTHONPATH:+:$PYTHONPATH} python3 "$RECIPE/verses.py" "$CORPUS" "$1" \
        --labels "$LABELS" --every "$EVERY"
}

TOKENIZER=moses SPEECH=en LOWER=1
SUBWORDS=words:8000

BATCH_TOKENS=4096 MOST_TOKENS=4096
LENGTH=2
MODEL=(--arch entmax_roberta --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256
    --encoder-attention-heads 4 --dropout 0.3)
TRAINING=("${SELECTION[@]}"
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 200)

MODELS=(softmax sparsemax entmax15 entmax)

SEARCH_UPDATES=424 RECOVERY_UPDATES=848 # an epoch, and two
prune_schedules() { two_phases 0.0005 0.001; }
