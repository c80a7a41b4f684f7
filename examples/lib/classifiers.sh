# What the recipes for classification share: fairseq's RoBERTa, small and trained from scratch, or a trained
# checkpoint given by --finetune-from-model. A dataset.sh sources this and sets, besides what recipe.sh
# lists:
#
#   INPUTS          array: input0, or input0 and input1 for pairs of texts
#   MODELS          array: the models that report.sh compares
#
# Its function splits writes text/SPLIT.input0, .input1 and .label for each split, with one example a line,
# and may write .group: examples with the same group resemble each other.

SOURCE=input0 TARGET=label
INPUTS=(input0)
# The class is read from <s>, which starts the input; </s> separates the texts of a pair
TASK=(--task sentence_prediction --init-token 0 --separator-token 2)
LENGTH_UNIT=epochs

# The number of labels is read from the data
model_options() {
    MODEL_OPTIONS=(--num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")" --attn-mapping "$1")
}

binary_files() { BINARY=("$OUTPUT"/data-bin/{input?,label}/{dict.txt,*.bin,*.idx}); }

# accuracy_of FILE...: scores predictions; the bootstrap draws whole groups, if there are any
accuracy_of() {
    local text=$OUTPUT/text/test groups=()
    if [[ -f $text.group ]]; then groups=(--groups "$text.group"); fi
    python3 "$TOOLS/accuracy.py" "$@" --labels "$text.label" "${groups[@]}"
}

# RoBERTa's output layer gets no gradient
DISTRIBUTED=(--find-unused-parameters)
# The best checkpoint has the highest accuracy on the validation set
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
TABLE_HELP='accuracy with its interval; change is the difference from the first model'
write_table() { accuracy_of "${RUNS[@]/%//test.predictions.jsonl}" --names "${CHOSEN[@]}"; }
analysis_options() { ANALYSIS=("${TASK[@]}" --num-classes "$(wc -l <"$OUTPUT/data-bin/label/dict.txt")"); }
