# What the recipes for language models share. A dataset.sh sources this first and then sets, besides
# what recipe.sh lists:
#
#   ARCHITECTURE   the end of the architecture's name, after (entmax_)transformer_lm; may be empty
#   EVALUATIONS    array: one word for each evaluation, with its name and options of fairseq-eval-lm,
#                  such as 'window --sample-break-mode none --context-window 192'
#
# Given in place of a mapping, stock is fairseq's own transformer_lm.

SOURCE=en TARGET=''
TASK=(--task language_modeling)
TOKENIZER=none
ARCHITECTURE=''

MODELS_HELP='softmax, sparsemax, entmax15, entmax, fusedmax, entmax:alpha=1.33, ...; or
                 stock, the unmodified transformer_lm of fairseq'

require_model() {
    [[ $2 == stock ]] || require_known_mapping "$1" "$2"
}

model_options() {
    case $1 in
    stock) MODEL_OPTIONS=(--arch "transformer_lm$ARCHITECTURE") RISES='' ;;
    *) MODEL_OPTIONS=(--arch "entmax_transformer_lm$ARCHITECTURE" --attn-mapping "$1") ;;
    esac
    MODEL_OPTIONS+=(--tokens-per-sample "$BLOCK_TOKENS" --sample-break-mode none)
}

PRUNE_ATTENTIONS=(decoder-self)
PRUNE_MODELS=(entmax)
PRUNE_COMPARE=no
PRUNE_FILE=perplexity.json
