# The options --mappings and --mapping, for scripts that take several models.

CHOSEN=()

help_on_models() {
    cat <<TEXT
  --mappings LIST
                 comma-separated; the others are compared with the first
                 (default: $(joined , "${MODELS[@]}")${WHERE_SCORED-}).
                 ${MODELS_HELP:-softmax, sparsemax, entmax15, entmax, entmax:alpha=1.33, ...}
  --mapping SPEC a single one, which may contain commas, such as 'sparsemax*5,softmax'; can be
                 repeated, and comes after those of --mappings
TEXT
}

# take_models OPTION NUMBER_OF_ARGUMENTS_LEFT [VALUE]: fails if it is another option
take_models() {
    local model list
    case $1 in
    --mappings)
        require_value "$1" "$2"
        [[ $3 != *[[:space:]]* && $3 != *,,* && $3 != ,* && $3 != *, && -n $3 ]] ||
            usage_error "option $1 got '$3': separate names by one comma and no spaces, such as $(joined , "${MODELS[@]:0:2}")"
        IFS=, read -r -a list <<<"$3"
        for model in "${list[@]}"; do
            # 'sparsemax*5,softmax', for example, is one mapping of six layers
            [[ $model != *\** || $model == *\|* ]] ||
                usage_error "option $1 got '$3', where '$model' is part of a list of layers: give the whole list with --mapping"
        done
        ;;
    --mapping)
        require_value "$1" "$2"
        list=("$3")
        ;;
    *) return 1 ;;
    esac
    for model in "${list[@]}"; do
        require_mapping "option $1" "$model"
        CHOSEN+=("$model")
    done
}

# settle_models: chooses the default if no models were named; refuses duplicate and unknown models
settle_models() {
    local model seen=' '
    ((${#CHOSEN[@]} > 0)) || CHOSEN=("${MODELS[@]}")
    for model in "${CHOSEN[@]}"; do
        [[ $seen != *" $model "* ]] || usage_error "option --mapping or --mappings has '$model' twice: remove one of them"
        seen+="$model "
        require_model "option --mapping or --mappings" "$model"
    done
}
