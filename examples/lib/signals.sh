# shellcheck shell=bash
# Of scripts that call each other, the first one gets a process group: a signal to it ends them all
if [[ -z ${RECIPE_GROUP-} ]]; then
    set -m
    RECIPE_GROUP=1 "$BASH" "$0" "$@" &
    set +m # else wait returns when the group is suspended
    # shellcheck disable=SC2064 # a loop around the script ends only if the script dies of the signal
    for signal in HUP INT TERM; do trap "kill -- -\$!; trap - $signal; kill -$signal \$\$" $signal; done
    wait "$!"
    exit
fi
