# What the recipes for classifiers have in common. A dataset.sh sources this, and says beside what
# recipe.sh lists:
#
#   INPUTS          array: input0, and input1 where pairs of texts are classified
#   PAIR            1: the texts of a pair are pooled apart
#   MODELS          array: what report.sh holds side by side
#
# Its splits write, for each split, text/SPLIT.input0, .input1 and .label, an example a line, and
# perhaps .group, the name of what resembles each other.
#
# A model is named by the mapping of the attention that pools words for the classification; with
# all: before it, the encoder's heads have the mapping, too. Else they have softmax.

SOURCE=input0 TARGET=label
INPUTS=(input0) PAIR=0
TASK=(--task sentence_prediction)
LENGTH_UNIT=epochs
MODELS_HELP='softmax, sparsemax, entmax15, entmax, fusedmax, oscarmax, ...: of the attention that
                 pools words; all:entmax15 and so on: of the encoder, too'

encoder_and_pooling() {
    case $1 in
    all:*) printf '%s\n' "${1#all:}" "${1#all:}" ;;
    *) printf '%s\n' softmax "$1" ;;
    esac
}

require_model() { require_known_mapping "$1" "${2#all:}"; }

# The data know how many labels there are. In a pair it is the premise's attention that the mapping
# is of, as in the paper; the hypothesis is pooled by softmax, unless all is sparse
model_options() {
    local mappings
    mapfile -t mappings < <(encoder_and_pooling "$1")
    MODEL_OPTIONS=(--num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")" --attn-mapping "${mappings[0]}")
    if ((PAIR == 1)); then
        MODEL_OPTIONS+=(--pair-attention --pooling-mapping "${mappings[0]}" --pair-mapping "${mappings[1]}")
    else
        MODEL_OPTIONS+=(--pooling-mapping "${mappings[1]}")
    fi
}

binary_files() { BINARY=("$OUTPUT"/data-bin/{input?,label}/{dict.txt,*.bin,*.idx}); }

# accuracy_of FILE...: what resembles each other is drawn together
accuracy_of() {
    local text=$OUTPUT/text/test groups=()
    if [[ -f $text.group ]]; then groups=(--groups "$text.group"); fi
    python3 "$TOOLS/accuracy.py" "$@" --labels "$text.label" ${groups[@]+"${groups[@]}"}
}

# The best checkpoint is that of the highest accuracy on the validation set
SELECTION=(--criterion sentence_prediction
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric)

PRUNE_ATTENTIONS=(encoder-self)
PRUNE_COMPARE=no
PRUNE_SCORES=accuracy
prune_criterion() { echo sentence_prediction_with_head_l0; }

# --- report.sh ---------------------------------------------------------------

TABLE=accuracy TABLE_OF=test.predictions.jsonl TABLE_TOOL=accuracy.py
TABLE_HELP='accuracy with its interval; change is what a model has more than the first'
write_table() { accuracy_of "${RUNS[@]/%//test.predictions.jsonl}" --names "${CHOSEN[@]}"; }
analysis_options() { ANALYSIS=("${TASK[@]}" --num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")"); }
