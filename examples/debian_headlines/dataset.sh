# Descriptions of Debian's packages and their titles; see README.md.
#
# The package lists are fetched from DEBIAN_MIRROR, or are *Translation-en* and *Packages* in RAW_DIR.
# VOCABULARY=words:8000 uses words instead of subwords, and numbered markers for words outside it.

SOURCE=source TARGET=target

LANGUAGES=(en) PROGRAM=descriptions.py
VALID_SOURCES=${VALID_SOURCES:-35} TEST_SOURCES=${TEST_SOURCES:-35} # about 2,000 pairs each
source "$ROOT/examples/lib/debian_lists.sh"

SUBWORDS=${VOCABULARY:-sentencepiece:8000}
case $SUBWORDS in
sentencepiece:[1-9]*) TOKENIZER=none ;;
words:[1-9]*)
    # Words as Moses tokenises them; those outside the vocabulary are copied by their markers
    TOKENIZER=moses SPEECH=en MARKERS=60
    MAX_WORDS=1000 # no pair is so long: none is left out
    DEFAULT_OUTPUT=$DEFAULT_OUTPUT-words
    ;;
*) usage_error "VOCABULARY is '$SUBWORDS': give sentencepiece:N or words:N, such as words:8000" ;;
esac

BATCH_TOKENS=4096 MOST_TOKENS=4096
LENGTH_UNIT=epochs LENGTH=4 RISES=1
MODEL=(--encoder-layers 2 --decoder-layers 2
    --encoder-embed-dim 128 --decoder-embed-dim 128
    --encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512
    --encoder-attention-heads 4 --decoder-attention-heads 4
    --encoder-normalize-before --decoder-normalize-before
    --share-all-embeddings --dropout 0.1)
TRAINING=(--label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0
    --lr 0.004 --lr-scheduler inverse_sqrt --warmup-updates 500)

# The weight of the loss on the copy scores, which helps a sparse copy head to start learning
COPY_LOSS_WEIGHT=${COPY_LOSS_WEIGHT:-0.5}
MODELS=(copy no-copy entmax15 entmax fusedmax sparse-copy-head)
MODELS_HELP='no-copy, copy, entmax15, entmax, fusedmax or sparse-copy-head'

# Called once the options are read: the data must have the units that VOCABULARY says
canonical_model() {
    local units=${OUTPUT-$output}/data-bin/units
    if [[ -f $units && $(<"$units") != "$SUBWORDS" ]]; then
        die "the data in ${units%/*} were prepared with VOCABULARY=$(<"$units"): set the same VOCABULARY here"
    fi
    printf '%s\n' "$1"
}

require_model() {
    [[ " ${MODELS[*]} " == *" $2 "* ]] || usage_error "$1 got '$2': give $MODELS_HELP"
}

model_options() {
    local copies=(--arch entmax_copy_transformer --criterion copy_cross_entropy)
    if ((MARKERS > 0)); then copies+=(--source-position-markers "$MARKERS"); fi
    case $1 in
    no-copy) MODEL_OPTIONS=(--arch entmax_transformer --criterion label_smoothed_cross_entropy --attn-mapping softmax) ;;
    copy) MODEL_OPTIONS=("${copies[@]}" --attn-mapping softmax) ;;
    entmax15 | entmax) MODEL_OPTIONS=("${copies[@]}" --attn-mapping "$1" --copy-loss-weight "$COPY_LOSS_WEIGHT") ;;
    fusedmax) MODEL_OPTIONS=("${copies[@]}" --attn-mapping softmax --cross-attn-mapping fusedmax) ;;
    sparse-copy-head)
        MODEL_OPTIONS=("${copies[@]}" --attn-mapping softmax
            --copy-mapping entmax --copy-loss-weight "$COPY_LOSS_WEIGHT")
        ;;
    esac
}

# As OpenNMT searches for summaries: Wu's length penalty, and no trigram twice; titles are short
GENERATION=(--beam 5 --length-penalty wu --lenpen 0.9 --no-repeat-ngram-size 3
    --min-len 3 --max-len-a 0 --max-len-b 40)
rouge_options() { ROUGE=(--reference "$2/$1.$TARGET"); }

PRUNE_LAYERS=2 PRUNE_HEADS=4
PRUNE_MODELS=(copy)
PRUNE_BUDGETS=all=12,all=6
prune_criterion() { echo copy_cross_entropy_with_head_l0; }
PRUNE_COMPARE=no
PRUNE_SCORES=ROUGE-1,ROUGE-2,ROUGE-L PRUNE_FILE=test.rouge.json
SEARCH_UPDATES=1000 RECOVERY_UPDATES=2000 # an epoch has 1,081
prune_schedules() { two_phases 0.001 0.002; }

TABLE=rouge TABLE_TOOL=rouge_table.py
TABLE_HELP='ROUGE, the interval of ROUGE-L for the first model, and the change from it for the others'
# The first model with its intervals, and the others compared with it
write_table() {
    local run ROUGE compared files=()
    rouge_options test "$OUTPUT/text"
    for run in "${RUNS[@]}"; do
        compared=()
        if [[ $run != "${RUNS[0]}" ]]; then compared=(--compare "$run/test.hyp"); fi
        write_atomically "$run/rouge.json" fairseq-entmax rouge "${RUNS[0]}/test.hyp" --text --json \
            "${compared[@]}" "${ROUGE[@]}" || return
        files+=("$run/rouge.json")
    done
    python3 "$TOOLS/rouge_table.py" "${files[@]}" --names "${CHOSEN[@]}"
}
analysis_options() {
    ANALYSIS=(--source-lang "$SOURCE" --target-lang "$TARGET" --of generated --task entmax_summarization "${GENERATION[@]}")
}
