# prune.sh of every recipe that prunes: prunes heads of trained models to several budgets,
# trains models with the same heads from scratch, and prints one table. The phases are in pruning.sh.
#
# A recipe's dataset.sh sets, besides what recipe.sh lists:
#
#   PRUNE_LAYERS PRUNE_HEADS   layers of encoder and decoder, heads in each attention of a layer
#   PRUNE_BUDGETS              the default of --budgets
#   PRUNE_ATTENTIONS           array: the attentions of the model, if it has not all three
#   PRUNE_MODELS               array: the default of --mapping
#   prune_criterion            function MODEL: prints the criterion that prunes the model
#   PRUNE_COMPARE              no: no models from scratch, no baseline trained further, no speed
#   PRUNE_SCORES PRUNE_FILE    scores in the table, and the file of a run that has them
#   SEARCH_UPDATES             updates of the search for the heads that can go
#   RECOVERY_UPDATES           updates of the recovery without these heads
#   PRUNE_MODEL                array: options of the pruned models besides MODEL
#   prune_schedules            function: reads SEARCH_UPDATES and RECOVERY_UPDATES; sets the arrays searching
#                              and recovering, options of fairseq-train for the two phases (see two_phases),
#                              and may set from_scratch, options of models trained from scratch

source "$(dirname "${BASH_SOURCE[0]}")/recipe.sh"
source "$(dirname "${BASH_SOURCE[0]}")/run.sh"
source "$(dirname "${BASH_SOURCE[0]}")/pruning.sh"

# A trial can set smaller numbers
SPEED_SENTENCES=${SPEED_SENTENCES:-100} SPEED_REPEATS=${SPEED_REPEATS:-3}
prune_help() {
    print_head_comment "$RECIPE/dataset.sh"
    cat <<TEXT

Prunes heads of trained models to several budgets, and prints one table of heads and scores; most
recipes also train models with the same heads from scratch, and measure the speed of all models.

  prune.sh [options] [-- options of fairseq-train]

  --mapping SPEC        only this attention mapping or model (default: ${PRUNE_MODELS[*]})
  --budgets LIST        comma-separated numbers of heads to keep: all=N in all attentions together; or,
                        if there are three, encoder=N in the encoder, with the decoder frozen, or E/D/C
                        in encoder-self, decoder-self and cross attention (- for one without gates)
                        (default: $PRUNE_BUDGETS)
  $(printf '%-21s' "--$LENGTH_UNIT N") length of the baseline's training (default: $LENGTH)
  --protocol WHAT       how to find the heads to remove: gates, by a search; subset, by a search in
                        which exactly as many gates are open as the budget says; regularised, by a
                        search that trains the whole model from scratch; loss, by the loss without
                        each head, with all updates in the recovery (default: $PROTOCOL)
  --teacher             the recovery also learns from the whole model, trained on for as long
  --search-updates N    updates of the search for the heads to remove (default: $SEARCH_UPDATES)
  --recovery-updates N  updates of the recovery, which trains the smaller model further, with a
                        learning rate that rises again and falls to 0 (default: $RECOVERY_UPDATES)
  --processes N, --most-tokens N
                        as in train.sh
  --output DIR          where prepare.sh wrote its data (default: ${DEFAULT_OUTPUT#"$ROOT"/}/ in the
                        project's folder); the runs go to DIR/runs/prune-*, the table to
                        DIR/pruning.tsv
  --cpu, --gpu          device (default: a GPU if torch finds one, else the CPU)
  --help                this text

Can be stopped and run again: it resumes where it stopped. Two mappings can run at the same time in
separate folders; once their runs are in one folder, a call with both prints one table.
TEXT
}

output=$DEFAULT_OUTPUT
mappings=("${PRUNE_MODELS[@]}")
budgets=$PRUNE_BUDGETS
device=auto taught=''
while (($# > 0)); do
    case $1 in
    --mapping) require_value "$1" $# && require_mapping "option $1" "$2" && mappings=("$2") && shift ;;
    --budgets) require_value "$1" $# && budgets=$2 && shift ;;
    "--$LENGTH_UNIT") require_value "$1" $# && require_positive_integer "$1" "$2" && LENGTH=$2 && shift ;;
    --protocol) require_value "$1" $# && PROTOCOL=$2 && shift ;;
    --teacher)
        if [[ ${TRAINING[*]} == *adaptive_loss* ]]; then usage_error "option --teacher: an adaptive softmax cannot learn from a teacher"; fi
        taught=-teacher
        ;;
    --search-updates) require_value "$1" $# && require_positive_integer "$1" "$2" && SEARCH_UPDATES=$2 && shift ;;
    --recovery-updates) require_value "$1" $# && require_positive_integer "$1" "$2" && RECOVERY_UPDATES=$2 && shift ;;
    --processes | --most-tokens) require_value "$1" $# && require_positive_integer "$1" "$2" && SHARING+=("$1" "$2") && shift ;;
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") && shift ;;
    --cpu | --gpu) device=${1#--} ;;
    --) break ;;
    --help | -h) prune_help && exit 0 ;;
    *) usage_error "unknown option '$1': use --mapping, --budgets, --$LENGTH_UNIT, --protocol, --teacher, --search-updates, --recovery-updates, --processes, --most-tokens, --output, --cpu, --gpu, --help, or -- before options of fairseq-train" ;;
    esac
    shift
done
[[ $PROTOCOL =~ ^(gates|subset|regularised|loss)$ ]] || usage_error "option --protocol got '$PROTOCOL': use gates, subset, regularised or loss"
if [[ ${1-} == -- ]]; then shift; fi
further=("$@") # for every training
require_commands python3 fairseq-train fairseq-generate fairseq-entmax
plan=$(plan_of "$budgets") || exit
by=-$PROTOCOL by=${by#-gates}
# The first line says when heads are decided; budgets follow
mapfile -t budget_names < <(tail -n +2 <<<"$plan" | cut -f 1)
budget_names=("${budget_names[@]/%/$by}")
IFS=, read -r -a budget_texts <<<"$budgets"

for i in "${!mappings[@]}"; do
    mappings[i]=$(canonical_model "${mappings[i]}") || exit
    require_model "option --mapping" "${mappings[i]}"
done
device=$(choose_device "$device")
require_data "$output"
hold_lock "$output"

from_scratch=() searching=() recovering=()
prune_schedules

# run_of MAPPING NAME: the folder of a run
run_of() { printf 'prune-%s-%s\n' "$(mapping_name "$1")" "$2"; }

# baseline_of MAPPING: the run of its baseline; that of train.sh, if it is the same model
baseline_of() {
    if ((${#PRUNE_MODEL[@]} + ${#from_scratch[@]} + ${#further[@]} > 0)); then
        run_of "$1" baseline
    else
        run_name "$1" "$LENGTH" "$LENGTH_UNIT"
    fi
}

# prune_and_compare MAPPING: every run of one mapping
prune_and_compare() {
    local mapping=$1 baseline i found run updates phases teacher=()
    baseline=$(baseline_of "$mapping")
    train_run "$baseline" "$LENGTH_UNIT" "$LENGTH" "$mapping" "${PRUNE_MODEL[@]}" \
        "${from_scratch[@]}" "${further[@]}"
    evaluate_run "$baseline" "$mapping"

    if [[ $PRUNE_COMPARE == yes || -n $taught ]]; then
        # The effect of as many updates without pruning, and a better teacher than the baseline itself
        run=$(run_of "$mapping" continued)
        continue_run "$run" "$baseline" "$mapping" "${further[@]}"
        evaluate_run "$run" "$mapping"
        if [[ -n $taught ]]; then teacher=(--teacher "$(best_of "$run")"); fi
    fi

    for i in "${!budget_names[@]}"; do
        found=$(run_of "$mapping" "${budget_names[i]}") run=$found$taught
        find_heads "$found-search" "$baseline" "${budget_texts[i]}" "$mapping" "${further[@]}"
        recover "$run-pruned" "$found-search" "$mapping" "${teacher[@]}" "${further[@]}"
        evaluate_run "$run-pruned" "$mapping"

        [[ $PRUNE_COMPARE == yes ]] || continue
        phases=("$run-pruned")
        if [[ $PROTOCOL != loss ]]; then phases+=("$found-search"); fi
        # A search from scratch does not begin with the baseline
        if [[ $PROTOCOL != regularised ]]; then phases+=("$baseline"); fi
        updates=$(updates_of "${phases[@]}")
        train_from_scratch "$found-scratch" "$run-pruned" "$updates" "$mapping" "${further[@]}"
        evaluate_run "$found-scratch" "$mapping"
    done
}

# runs_of MAPPING: the runs of the table, in its order
runs_of() {
    local budget gated
    baseline_of "$1"
    if [[ $PRUNE_COMPARE == yes ]]; then run_of "$1" continued; fi
    for budget in "${budget_names[@]}"; do
        gated=$(run_of "$1" "$budget")
        printf '%s\n' "$gated$taught-pruned"
        if [[ $PRUNE_COMPARE == yes ]]; then printf '%s\n' "$gated-scratch"; fi
    done
}

# measure_speed MAPPING FILE: times all models of a mapping, in turns
measure_speed() {
    local file=$output/runs/$2 run step paths=() sums=() on=cpu
    while read -r run; do
        paths+=("$(best_of "$run")")
        sums+=("$(sha256_of "$(best_of "$run")")")
    done < <(runs_of "$1")
    step=$(fingerprint speed "$device" "$SPEED_SENTENCES" "$SPEED_REPEATS" "${paths[@]}" "${sums[@]}")
    if [[ $device == gpu ]]; then on=cuda; fi
    once "speed of $1: ${#paths[@]} models in turns" "$file.done" "$step" "$file" -- \
        logged "$file.log" python3 "$ROOT/scripts/benchmarks/pruned_generation.py" "$output/data-bin" \
        --path "${paths[@]}" --sentences "$SPEED_SENTENCES" --repeats "$SPEED_REPEATS" --device "$on" --json "$file"
}

all_tables() {
    local mapping run name speed=
    if [[ $PRUNE_COMPARE == yes ]]; then speed=yes; fi
    for mapping in "${mappings[@]}"; do
        while read -r run; do
            name=${run#"$(run_of "$mapping" "")"}
            if [[ $run == "$(baseline_of "$mapping")" ]]; then name=baseline; fi
            printf '%s\t%s\t%s\t%s\t%s\n' "$mapping" "$name" "$(best_of "$run")" \
                "$output/runs/$run/$PRUNE_FILE" "${speed:+$output/runs/$(run_of "$mapping" speed.json)}"
        done < <(runs_of "$mapping")
    done | python3 "$TOOLS/pruning_table.py" "$PRUNE_SCORES"
}

# One table for each protocol
table=$output/pruning$by$taught.tsv
rm -f "$table"
for mapping in "${mappings[@]}"; do prune_and_compare "$mapping"; done
if [[ $PRUNE_COMPARE == yes ]]; then
    for mapping in "${mappings[@]}"; do measure_speed "$mapping" "$(run_of "$mapping" speed.json)"; done
fi
write_atomically "$table" all_tables
say "pruning ($table)"
python3 "$TOOLS/tables.py" "$table"
