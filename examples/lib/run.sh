# What train.sh, evaluate.sh and prune.sh share besides recipe.sh.

# parse_run_options OPTION... MAPPING REST...: reads the options that name a run, for train.sh and
# evaluate.sh. Sets OUTPUT LENGTH DEVICE MAPPING RUN and the array REST; the options that only
# train.sh has (EXTRA_OPTIONS) set PROCESSES MOST_TOKENS NODES NODE_RANK MASTER. Every recipe takes a
# length in updates, even if its LENGTH_UNIT is epochs.
parse_run_options() {
    local name='' lengths="--$LENGTH_UNIT"
    if [[ $LENGTH_UNIT == epochs ]]; then lengths+=", --updates"; fi
    local allowed="--output, $lengths, --name, $EXTRA_OPTIONS--cpu, --gpu or --help"
    OUTPUT=$DEFAULT_OUTPUT DEVICE=auto PROCESSES='' NODES=1 NODE_RANK=0 MASTER=''
    while [[ ${1-} == -* ]]; do
        [[ " --output, $lengths, --name, --cpu, --gpu, --help, -h, $EXTRA_OPTIONS" == *" $1, "* ]] ||
            usage_error "unknown option '$1': use $allowed"
        case $1 in
        --output) require_value "$1" $# && require_plain_path "$1" "$2" && OUTPUT=$(absolute_path "$2") && shift ;;
        --epochs | --updates) require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 LENGTH_UNIT=${1#--} && shift ;;
        --name) require_value "$1" $# && name=$2 && shift ;;
        --processes) require_value "$1" $# && require_positive_integer "$1" "$2" && PROCESSES=$2 && shift ;;
        --most-tokens) require_value "$1" $# && require_positive_integer "$1" "$2" && MOST_TOKENS=$2 && shift ;;
        --nodes) require_value "$1" $# && require_positive_integer "$1" "$2" && NODES=$2 && shift ;;
        --node-rank) require_value "$1" $# && NODE_RANK=$2 && shift ;;
        --master) require_value "$1" $# && MASTER=$2 && shift ;;
        --cpu | --gpu) DEVICE=${1#--} ;;
        --help | -h) run_help && exit 0 ;;
        esac
        shift
    done
    (($# >= 1)) || usage_error "no mapping given: name one after the options, such as entmax"
    MAPPING=$1
    shift
    require_mapping "the mapping" "$MAPPING"
    MAPPING=$(canonical_model "$MAPPING") || exit
    [[ -n $name ]] || name=$(run_name "$MAPPING" "$LENGTH" "$LENGTH_UNIT")
    [[ $name =~ ^[A-Za-z0-9_][A-Za-z0-9_.=+-]*$ ]] ||
        usage_error "option --name got '$name': use letters, digits and . _ = + - only"
    RUN=$OUTPUT/runs/$name
    REST=("$@") # settle_dataset may look at them
    settle_dataset "$OUTPUT"
}

help_on_length() { # WHAT
    printf '  %-14s %s (default: %s)\n' "--$LENGTH_UNIT N" "$1" "$LENGTH"
    [[ $LENGTH_UNIT != epochs ]] || echo '  --updates N    the same, in updates instead of epochs'
}

# The part of --help that the scripts share
help_on_runs() {
    cat <<TEXT
  MAPPING        ${MODELS_HELP:-softmax, sparsemax, entmax15, entmax, fusedmax, entmax:alpha=1.33, ...}
  --output DIR   where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                 project's folder); the run is in DIR/runs/
$(help_on_length "length of the training")
  --name NAME    the run's folder in DIR/runs/ (default: <mapping>-<N>$LENGTH_UNIT)
  --cpu, --gpu   device (default: a GPU if torch finds one, else the CPU)
  --help         this text
TEXT
}

require_data() {
    [[ -f $1/data-bin/.done ]] || die "no data in $1/data-bin: run prepare.sh --output '$1' first"
}

# has_own_data RUN: whether the data are those that a run was trained on
has_own_data() {
    binary_files
    grep -qxF "data: $(files_fingerprint "${BINARY[@]}")" "$1/settings.txt"
}

# run_with_progress LOG UNIT LENGTH COMMAND...: like logged, but shows progress, and appends to LOG; UNIT is updates,
# epochs or batches
run_with_progress() {
    local status=0
    "${@:4}" 2>&1 | python3 "$TOOLS/fairseq_progress.py" "${@:1:3}" || status=${PIPESTATUS[0]}
    ((status == 0)) || failed "$1" "$status" "$4"
}
