# What the recipes for summaries share: models that copy, and the training and search of OpenNMT-py's
# CopyTransformer. A dataset.sh sources this first, and then sets what is special to it.
#
# The training is that of the page "Summarization" of OpenNMT-py's documentation (github.com/
# OpenNMT/OpenNMT-py, docs/source/examples/summary/Summarization.md, "CNN-DM Transformer"); the table in
# ../cnn_dm/README.md lists the corresponding options of fairseq.
#
# Environment: LAYERS is the number of layers in each of encoder and decoder; VOCABULARY=words:50000 makes
# prepare.sh use words instead of subwords.

SOURCE=article TARGET=summary
SUBWORDS=${VOCABULARY:-joint:32000}
MARKERS=200 # of a source; read by prepare.sh alone, whose data say it to the others
LAYERS=${LAYERS:-4}

BATCH_TOKENS=32768 MOST_TOKENS=4096
LENGTH=200000
MODEL=(--dropout 0.2 --attention-dropout 0.2 --activation-dropout 0.2)
TRAINING=(--label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.998)' --adam-eps 1e-9
    --lr 0.00098821 --lr-scheduler inverse_sqrt --warmup-updates 8000
    --validate-interval-updates 5000 --save-interval-updates 5000
    --keep-interval-updates 1 --validate-interval 1000000 --save-interval 1000000)

MODELS_HELP='baseline, or sparse-enc, sparse-tl, sparse-ch, sparse-all (followed by
                 :entmax15, :entmax, ...; default :sparsemax), or cross:MAPPING, which does not copy'

case $SUBWORDS in
joint:[1-9]* | words:[1-9]*) ;;
*) usage_error "VOCABULARY is '$SUBWORDS': give joint:N or words:N, such as words:50000" ;;
esac
require_positive_integer LAYERS "$LAYERS"

canonical_model() { python3 "$TOOLS/summary_models.py" name "$1"; }

require_model() { python3 "$TOOLS/summary_models.py" known "$1" "$2"; }

# The dictionary shows how many numbered markers the data have: none if they are subwords
model_options() {
    local markers options
    markers=$(awk '/^<unk-[0-9]+> /' "$OUTPUT/data-bin/dict.$SOURCE.txt" | wc -l)
    options=$(python3 "$TOOLS/summary_models.py" options "$1" "$LAYERS" "$((markers))") || exit
    mapfile -t MODEL_OPTIONS <<<"$options"
}

PRUNE_LAYERS=$LAYERS PRUNE_HEADS=8
PRUNE_MODELS=(baseline sparse-tl)
PRUNE_BUDGETS=30/-/32,12/-/18,10/-/11
SEARCH_UPDATES=20000 RECOVERY_UPDATES=40000
PRUNE_COMPARE=no
PRUNE_SCORES=ROUGE-1,ROUGE-2,ROUGE-L PRUNE_FILE=test.rouge.json
prune_criterion() {
    case $1 in
    cross:*) echo label_smoothed_cross_entropy_with_head_l0 ;;
    *) echo copy_cross_entropy_with_head_l0 ;;
    esac
}
prune_schedules() { two_phases 0.0002 0.0004; }
