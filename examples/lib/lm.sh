# What the recipes for language models have in common. A dataset.sh sources this and says its own
# behind it, beside what recipe.sh lists:
#
#   ARCHITECTURE   what stands behind (entmax_)transformer_lm in the architecture's name, or nothing
#   EVALUATIONS    array: for each evaluation, its name and its options of fairseq-eval-lm, in one
#                  word, such as 'window --sample-break-mode none --context-window 192'
#   LENGTH_OPTION  the option of fairseq-train, if any, that tells its schedule the length of a training
#
# In the place of a mapping, stock is fairseq's own transformer_lm.

SOURCE=en TARGET=''
TASK=(--task language_modeling)
TOKENIZER=none
ARCHITECTURE='' LENGTH_OPTION=''

MODELS_HELP='softmax, sparsemax, entmax15, entmax, fusedmax, entmax:alpha=1.33, ...; or
                 stock, which is the transformer_lm of fairseq itself'

require_model() {
    [[ $2 == stock ]] || require_known_mapping "$1" "$2"
}

model_options() {
    case $1 in
    stock) MODEL_OPTIONS=(--arch "transformer_lm$ARCHITECTURE") ;;
    *) MODEL_OPTIONS=(--arch "entmax_transformer_lm$ARCHITECTURE" --attn-mapping "$1") ;;
    esac
    MODEL_OPTIONS+=(--tokens-per-sample "$BLOCK_TOKENS" --sample-break-mode none
        ${LENGTH_OPTION:+"$LENGTH_OPTION" "$LENGTH"})
}

PRUNE_ATTENTIONS=(decoder-self)
PRUNE_MODELS=(entmax)
PRUNE_COMPARE=no
PRUNE_FILE=perplexity.json
