# What the recipes for classification have in common: fairseq's RoBERTa, small and from nothing, or from a
# checkpoint of its own by --finetune-from-model. A dataset.sh sources this, and says beside what
# recipe.sh lists:
#
#   INPUTS          array: input0, and input1 where pairs of texts are classified
#   MODELS          array: what report.sh holds side by side
#
# Its splits write, for each split, text/SPLIT.input0, .input1 and .label, an example a line, and
# perhaps .group, the name of what resembles each other.

SOURCE=input0 TARGET=label
INPUTS=(input0)
# <s> before a text, from which its class is read, and </s> before the second text of a pair
TASK=(--task sentence_prediction --init-token 0 --separator-token 2)
LENGTH_UNIT=epochs

# The data know how many labels there are
model_options() {
    MODEL_OPTIONS=(--num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")" --attn-mapping "$1")
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

PRUNE_LAYERS=2 PRUNE_HEADS=4
PRUNE_ATTENTIONS=(encoder-self)
PRUNE_MODELS=(softmax)
PRUNE_BUDGETS=all=4,all=2
PRUNE_COMPARE=no
PRUNE_SCORES=accuracy
prune_criterion() { echo sentence_prediction_with_head_l0; }

# --- report.sh ---------------------------------------------------------------

TABLE=accuracy TABLE_OF=test.predictions.jsonl TABLE_TOOL=accuracy.py
TABLE_HELP='accuracy with its interval; change is what a model has more than the first'
write_table() { accuracy_of "${RUNS[@]/%//test.predictions.jsonl}" --names "${CHOSEN[@]}"; }
analysis_options() { ANALYSIS=("${TASK[@]}" --num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")"); }
