# Descriptions of Debian's packages and their titles; see README.md.
#
# shellcheck shell=bash disable=SC2034

SOURCE=source TARGET=target

# shellcheck source=examples/debian_headlines/lists.sh
source "$RECIPE/lists.sh"

# Of a thousand source packages, those for validation and for the test: about 2,000 pairs each
VALID_SOURCES=${VALID_SOURCES:-35} TEST_SOURCES=${TEST_SOURCES:-35}
SPLITS_FROM=("$VALID_SOURCES" "$TEST_SOURCES" "$(files_fingerprint "$RECIPE"/{descriptions.py,lists.sh})")
if [[ -n ${RAW_DIR-} ]] && has_lists "$RAW_DIR"; then
    SPLITS_FROM+=("$(files_fingerprint "$RAW_DIR"/*Translation-en* "$RAW_DIR"/*Packages*)")
fi

splits() {
    have_lists
    python3 "$RECIPE/descriptions.py" "$LISTS" "$1" --valid "$VALID_SOURCES" --test "$TEST_SOURCES" ||
        die "the package lists could not be read: the message is above"
}

UNITS=${UNITS:-pieces}
case $UNITS in
pieces) TOKENIZER=none SUBWORDS=sentencepiece:8000 ;;
words)
    # As Moses cuts them; those outside the vocabulary are copied by their number
    TOKENIZER=moses SPEECH=en SUBWORDS=words:8000 MARKERS=60
    MAX_WORDS=1000 # no pair is so long: none is left out
    DEFAULT_OUTPUT=$DEFAULT_OUTPUT-words
    ;;
*) usage_error "UNITS is '$UNITS': give pieces or words" ;;
esac

BATCH_TOKENS=4096 MOST_TOKENS=4096
LENGTH_UNIT=epochs LENGTH=7
MODEL=(--encoder-layers 2 --decoder-layers 2
    --encoder-embed-dim 128 --decoder-embed-dim 128
    --encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512
    --encoder-attention-heads 4 --decoder-attention-heads 4
    --encoder-normalize-before --decoder-normalize-before
    --share-all-embeddings --dropout 0.1)
TRAINING=(--label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 0.004 --lr-scheduler inverse_sqrt --warmup-updates 500)

# The weight of the loss on the copy scores, by which a sparse copy head learns to start
COPY_LOSS_WEIGHT=1.0
MODELS=(no-copy copy entmax15 entmax fusedmax sparse-copy-head)
MODELS_HELP="no-copy, copy, entmax15, entmax, fusedmax or sparse-copy-head: see README.md"

require_model() {
    [[ " ${MODELS[*]} " == *" $2 "* ]] || usage_error "$1 got '$2': give $MODELS_HELP"
}

model_options() {
    local copies=(--arch entmax_copy_transformer --criterion copy_cross_entropy)
    if ((MARKERS > 0)); then copies+=(--source-position-markers "$MARKERS"); fi
    case $1 in
    no-copy) MODEL_OPTIONS=(--arch entmax_transformer --criterion label_smoothed_cross_entropy --attn-mapping softmax) ;;
    copy) MODEL_OPTIONS=("${copies[@]}" --attn-mapping softmax) ;;
    entmax15 | entmax) MODEL_OPTIONS=("${copies[@]}" --attn-mapping "$1") ;;
    fusedmax) MODEL_OPTIONS=("${copies[@]}" --attn-mapping softmax --cross-attn-mapping fusedmax) ;;
    sparse-copy-head) MODEL_OPTIONS=("${copies[@]}" --attn-mapping softmax --copy-mapping sparsemax --copy-loss-weight "$COPY_LOSS_WEIGHT") ;;
    esac
}

# As OpenNMT searches for summaries: Wu's length penalty, no trigram twice. A title is short
TASK=entmax_summarization
GENERATION=(--beam 5 --length-penalty wu --lenpen 0.9 --no-repeat-ngram-size 3 --min-len 3 --max-len-a 0 --max-len-b 40)
