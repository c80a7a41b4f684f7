# The phases of pruning, for scripts that prune: the heads that can go are found and taken out, and a
# recovery trains the smaller model. Also what this model is compared with: its baseline trained further,
# and a model with the same heads trained from scratch.
#
# Source it after recipe.sh and run.sh. The caller sets output, device and the array SHARING, further
# options of train.sh. PROTOCOL says how heads are found: gates, or subset (--gate subset), by a search from
# the baseline; regularised, by a search from scratch; loss, by the loss without each head, where the
# recovery also gets the updates of the search. A recipe's dataset.sh sets SEARCH_UPDATES and RECOVERY_UPDATES,
# the lengths of the two phases. Its prune_schedules sets the arrays searching and recovering, options of
# fairseq-train for these phases, and from_scratch, for models that are trained from scratch.

PROTOCOL=gates
declare -F prune_criterion >/dev/null ||
    prune_criterion() { echo label_smoothed_cross_entropy_with_head_l0; }

# two_phases SEARCH_LR RECOVERY_LR: sets searching and recovering, as most recipes have them. In the
# search, the learning rate rises and stays, as heads are decided at the end; in the recovery, it rises
# again and falls to 0.
two_phases() {
    searching=(--lr "$1" --end-learning-rate "$1" --lr-scheduler polynomial_decay
        --warmup-updates $((SEARCH_UPDATES / 20)) --total-num-update "$SEARCH_UPDATES")
    recovering=(--lr "$2" --end-learning-rate 0 --lr-scheduler polynomial_decay
        --warmup-updates $((RECOVERY_UPDATES / 20)) --total-num-update "$RECOVERY_UPDATES")
}

best_of() { printf '%s\n' "$output/runs/$1/checkpoints/checkpoint_best.pt"; }

# train_run RUN UNIT LENGTH MAPPING OPTION...
train_run() {
    local run=$1 unit=$2 length=$3 mapping=$4
    shift 4
    "$RECIPE/train.sh" --output "$output" "--$unit" "$length" --name "$run" "--$device" \
        "${SHARING[@]}" "$mapping" "$@"
}

evaluate_run() { "$RECIPE/evaluate.sh" --output "$output" --name "$1" "--$device" "$2"; }

# plan_of BUDGETS: prints when heads are decided, then a line for each budget
plan_of() {
    python3 "$TOOLS/pruning_plan.py" --updates "$SEARCH_UPDATES" --layers "$PRUNE_LAYERS" \
        --heads "$PRUNE_HEADS" ${PRUNE_ATTENTIONS[@]+--attentions "${PRUNE_ATTENTIONS[@]}"} -- "$1"
}

# gates_of BUDGET: sets GATES, options of a search
gates_of() {
    local plan timing options
    plan=$(plan_of "$1") || exit
    {
        read -r -a timing
        IFS=$'\t' read -r _ options
    } <<<"$plan"
    if [[ $PROTOCOL == regularised ]]; then options=${options/--freeze-decoder/}; fi # a new one must learn
    read -r -a GATES <<<"$options"
    if [[ $PROTOCOL == subset ]]; then GATES+=(--gate subset); fi
    # The length of a search is fixed: the decision raises the loss, which must not end it early
    GATES+=(--patience -1 "${timing[@]}")
}

# search RUN BASELINE BUDGET MAPPING OPTION...: trains with gates, down to the heads of the budget
search() {
    local GATES from_scratch=() searching recovering
    gates_of "$3"
    prune_schedules
    searching+=(--finetune-from-model "$(best_of "$2")")
    if [[ $PROTOCOL == regularised ]]; then searching=("${from_scratch[@]}"); fi
    train_run "$1" updates "$SEARCH_UPDATES" "$4" "${PRUNE_MODEL[@]}" \
        "${searching[@]}" --criterion "$(prune_criterion "$4")" "${GATES[@]}" "${@:5}"
}

pruned_of() { printf '%s\n' "$output/runs/$1/pruned.pt"; }

# find_heads RUN BASELINE BUDGET MAPPING OPTION...: makes pruned.pt of a run, a model with the heads of
# the budget
find_heads() {
    local GATES folder=$output/runs/$2 step on_device=()
    if [[ $PROTOCOL != loss ]]; then
        search "$@"
        take_out "$1"
        return
    fi
    if [[ $device == cpu ]]; then on_device=(--cpu); fi
    step=$(fingerprint ablate "$(sha256_of "$(best_of "$2")")")
    once "the loss of $2 without each head" "$folder/.removals.done" "$step" "$folder/removals/ablation.json" -- \
        write_atomically "$folder/removals.txt" fairseq-entmax ablate "$output/data-bin" "${TASK[@]}" \
        ${BLOCK_TOKENS:+--tokens-per-sample "$BLOCK_TOKENS"} --gen-subset valid --path "$(best_of "$2")" \
        --output "$folder/removals" --scores loss --max-tokens 4000 --num-workers 0 "${on_device[@]}"
    gates_of "$3"
    [[ " ${GATES[*]}" =~ " --target-heads "([^ ]+) ]]
    mkdir -p "$output/runs/$1"
    take_out "$1" "$(best_of "$2")" --keep "${BASH_REMATCH[1]}" --by loss --evidence "$folder/removals/ablation.json"
}

# take_out RUN [CHECKPOINT OPTION...]: makes pruned.pt of a run: the checkpoint without its closed heads, or
# pruned by options of fairseq-entmax prune. By default, it is the checkpoint of the run's last update: the
# one with the lowest loss may be from before the decision.
take_out() {
    local folder=$output/runs/$1 gated=${2:-$output/runs/$1/checkpoints/checkpoint_last.pt} pruned step
    pruned=$(pruned_of "$1")
    step=$(fingerprint prune "$(sha256_of "$gated")" "${@:3}")
    once "prune $1: remove heads" "$folder/.prune.done" "$step" "$pruned" -- \
        write_atomically "$folder/pruning.txt" fairseq-entmax prune "$gated" --output "$pruned" --overwrite "${@:3}"
    cat "$folder/pruning.txt"
}

# heads_of CHECKPOINT: sets HEADS, options of fairseq-train for a model with the same heads
heads_of() {
    local printed
    printed=$(fairseq-entmax prune --print-config "$1") || exit
    # The options are quoted for a shell, as a mapping can have special characters
    mapfile -t HEADS < <(python3 -c 'import shlex, sys; print(*shlex.split(sys.argv[1]), sep="\n")' "$printed")
}

# recover RUN SEARCH MAPPING OPTION...: trains the model of pruned.pt further
recover() {
    local HEADS from_scratch searching recovering RECOVERY_UPDATES=$RECOVERY_UPDATES
    if [[ $PROTOCOL == loss ]]; then RECOVERY_UPDATES=$((SEARCH_UPDATES + RECOVERY_UPDATES)); fi
    heads_of "$(pruned_of "$2")"
    prune_schedules
    train_run "$1" updates "$RECOVERY_UPDATES" "$3" "${PRUNE_MODEL[@]}" "${HEADS[@]}" "${recovering[@]}" \
        --finetune-from-model "$(pruned_of "$2")" "${@:4}"
}

# continue_run RUN BASELINE MAPPING OPTION...: trains the baseline for as many updates as both phases
# take, with the schedule of the recovery
continue_run() {
    local RECOVERY_UPDATES=$((SEARCH_UPDATES + RECOVERY_UPDATES)) from_scratch searching recovering
    prune_schedules
    train_run "$1" updates "$RECOVERY_UPDATES" "$3" "${PRUNE_MODEL[@]}" "${recovering[@]}" \
        --finetune-from-model "$(best_of "$2")" "${@:4}"
}

# train_from_scratch RUN PRUNED UPDATES MAPPING OPTION...: trains a model with the heads of a pruned run
train_from_scratch() {
    local HEADS from_scratch searching recovering
    heads_of "$(best_of "$2")"
    prune_schedules
    train_run "$1" updates "$3" "$4" "${PRUNE_MODEL[@]}" "${HEADS[@]}" \
        "${from_scratch[@]}" "${@:5}"
}

# updates_of RUN...: the total number of updates of these runs, from their logs
updates_of() {
    local run paths=()
    for run in "$@"; do paths+=("$output/runs/$run/train.log"); done
    python3 "$TOOLS/training_logs.py" "${paths[@]}"
}
