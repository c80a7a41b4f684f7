# shellcheck shell=bash
# Of scripts that call each other the first runs in a group of its own: a signal to it ends the group
if [[ -z ${RECIPE_GROUP-} ]]; then
    set -m
    RECIPE_GROUP=1 "$BASH" "$0" "$@" &
    # shellcheck disable=SC2064 # a loop around it ends only where it dies of the signal itself
    for signal in HUP INT TERM; do trap "kill -- -\$!; trap - $signal; kill -$signal \$\$" $signal; done
    wait "$!"
    exit
fi
