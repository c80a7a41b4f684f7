# What the dataset recipes share.
#
# The rule of every recipe: a step's product gets its final name only when it is
# complete, and a stamp beside it records the settings it was made with. So a
# finished step is skipped; one that was interrupted, or whose settings changed,
# runs again.

set -euo pipefail
TOOLS=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tools" && pwd)
# The name that the programs in tools/ put before their error messages
RECIPE_PROGRAM=${0##*/}
export RECIPE_PROGRAM
# By default, glibc returns large arrays to the system and requests them again in each update, which takes a sixth of
# the time of a training on a CPU. These settings make it keep them, in huge pages.
export GLIBC_TUNABLES=${GLIBC_TUNABLES-glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4000000000}

# Since bash 5.2, & in a replacement, such as a path, would be what was replaced
shopt -u patsub_replacement 2>/dev/null || :

# --- messages ----------------------------------------------------------------

say() { printf '==> %s\n' "$*"; }

# end_with STATUS WORD...: ends the script with an error message. In $(...) this would end the subshell alone, and
# within the words of a command nobody sees that: the signal ends the script too.
trap 'exit 1' USR1
end_with() {
    printf '%s: error: %s\n' "${0##*/}" "${*:2}" >&2
    if ((BASH_SUBSHELL > 0)); then kill -USR1 $$; fi
    exit "$1"
}

die() { end_with 1 "$@"; }

# For a wrong option or value: exits with the status that option parsers use.
usage_error() { end_with 2 "$* (see --help)"; }

# timed WHAT COMMAND...: runs the command, and says every minute how long it has taken
timed() {
    local clock begin=$SECONDS status
    # Only the script can write to the clock, so it ends with the command or with the script
    exec {clock}> >(while read -r -t "${CLOCK_SECONDS:-60}" || (($? > 128)); do
        say "$1: $(((SECONDS - begin) / 60)) min so far"
    done)
    "${@:2}"
    status=$?
    exec {clock}>&-
    return "$status"
}

# logged LOG COMMAND...: runs the command; if it fails, shows the end of its log and ends the script
logged() {
    "${@:2}" >"$1" 2>&1 || failed "$1" "$?" "$2"
}

failed() { # LOG STATUS COMMAND
    tail -n 30 "$1" >&2
    end_with "$2" "$3 failed with status $2: its last messages are above, all of them are in $1"
}

# Prints the comment at the head of a script, for --help.
print_head_comment() { awk '/^#!/ { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$1"; }

# --- values of options -------------------------------------------------------

# require_value OPTION NUMBER_OF_ARGUMENTS_LEFT
require_value() {
    (($2 >= 2)) || usage_error "option $1 needs a value: write $1 VALUE"
}

# require_positive_integer OPTION VALUE, or a variable of the environment and its value
require_positive_integer() {
    [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] ||
        usage_error "${1/#--/option --} got '$2': give a whole number of at least 1, such as 7"
}

# Checks only the characters of a mapping; require_known_mapping checks its meaning.
require_mapping() {
    [[ $2 =~ ^[A-Za-z0-9_\(][A-Za-z0-9_.,:=*+|\(\)-]*$ ]] ||
        usage_error "$1 got '$2': give a mapping such as softmax, entmax15, entmax or entmax:alpha=1.33"
}

# fairseq splits paths at colons and commas.
require_plain_path() {
    [[ -n $2 && $2 != *[:,]* ]] ||
        usage_error "option $1 got '$2': give a path that is not empty and has no colon or comma"
}

# absolute_path PATH: the same for foo, foo/ and ./foo, as runs record the paths of their models
absolute_path() {
    local path=${1#./}
    if [[ $path != /* ]]; then path=$PWD/$path; fi
    printf '%s\n' "${path%"${path##*[!/]}"}"
}

# mapping_name MAPPING: the mapping as part of a file name.
mapping_name() { sed 's/[():]/_/g; s/[*]/x/g; s/|/--/g; s/,/+/g' <<<"$1"; }

# run_name MAPPING LENGTH UNIT: the name of a run's folder. It includes the length, so that a
# model trained for longer is never shown as one trained for fewer epochs or updates.
run_name() { printf '%s-%s%s\n' "$(mapping_name "$1")" "$2" "$3"; }

# joined SEPARATOR WORD...
joined() {
    local IFS=$1
    shift
    printf '%s\n' "$*"
}

# --- requirements ------------------------------------------------------------

# require_commands COMMAND...
require_commands() {
    local command
    for command in "$@"; do
        command -v "$command" >/dev/null ||
            die "the command $command is not on PATH: activate the virtual environment that has fairseq-entmax with its fairseq extra, for example by 'source .venv/bin/activate' after scripts/quickstart.sh"
    done
}

# require_known_mapping WHAT MAPPING
require_known_mapping() { python3 "$TOOLS/environment.py" mapping "$1" "$2"; }

# cores: how many this process may use, which a cluster can limit; with OMP_NUM_THREADS, nproc would print that
cores() { env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

# choose_device auto|cpu|gpu: prints cpu or gpu.
choose_device() { if [[ $1 == cpu ]]; then echo cpu; else python3 "$TOOLS/environment.py" device "$1"; fi; }

# --- one run at a time -------------------------------------------------------

# hold_lock DIR [PYTHON]: keeps other runs out of DIR until this process and all its
# children have ended. Children inherit the lock, so a training that outlives a killed
# script still holds it, and nothing resumes from the checkpoints that it is writing.
hold_lock() {
    local dir=$1 python=${2:-python3}
    [[ ${RECIPE_LOCK-} != "$dir" ]] || return 0
    require_plain_path --output "$dir"
    mkdir -p "$dir"
    exec 9>>"$dir/.lock"
    # The worker processes of a killed training end some seconds after it
    "$python" -c 'import fcntl, signal, sys
signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
signal.alarm(10)
fcntl.flock(9, fcntl.LOCK_EX)' ||
        die "another run is using $dir: wait until it ends, stop it, or choose another --output"
    export RECIPE_LOCK=$dir
    # Leftovers of a killed prepare.sh; nothing writes to them now
    rm -rf "$dir"/{text,tok,spm,bpe,words,data-bin}.{tmp,old}
}

# --- fingerprints and stamps -------------------------------------------------

# checksums FILE...: a line for each; - is standard input.
checksums() {
    if command -v sha256sum >/dev/null; then sha256sum "$@"; else shasum -a 256 "$@"; fi ||
        die "no checksum of $*, for the reason above: run again once it can be read"
}

# sha256_of FILE: the checksum of a file; - is standard input.
sha256_of() {
    local sum
    sum=$(checksums "$1") || exit
    printf '%s\n' "${sum%% *}"
}

# fingerprint WORD...: one checksum for a list of settings.
fingerprint() { printf '%s\0' "$@" | sha256_of -; }

# files_fingerprint FILE...: changes when a name or a byte changes.
files_fingerprint() {
    local file sum
    for file in "$@"; do
        [[ -f $file ]] || die "the file $file is missing: run prepare.sh or evaluate.sh again"
    done
    checksums "$@" | while read -r sum file; do printf '%s %s\n' "$sum" "${file##*/}"; done | sha256_of -
}

# is_done STAMP FINGERPRINT PRODUCT...
is_done() {
    local product
    [[ -f $1 && $(<"$1") == "$2" ]] || return 1
    for product in "${@:3}"; do [[ -e $product ]] || return 1; done
}

# once WHAT STAMP FINGERPRINT PRODUCT... -- COMMAND...: runs a step, unless it is done
once() {
    local what=$1 stamp=$2 wanted=$3 products=()
    shift 3
    while [[ $1 != -- ]]; do products+=("$1") && shift; done
    if is_done "$stamp" "$wanted" "${products[@]}"; then say "$what: already done" && return; fi
    say "$what"
    rm -f "$stamp"
    "${@:2}"
    mark_done "$stamp" "$wanted"
}

# --- all or nothing ----------------------------------------------------------

# write_atomically FILE COMMAND...: writes the command's output to FILE, but only if the command succeeds. bash
# ignores set -e in a function that is called so: it has to return its failures.
write_atomically() {
    "${@:2}" >"$1.tmp" || {
        local status=$?
        rm -f "$1.tmp"
        return "$status"
    }
    mv -f "$1.tmp" "$1"
}

# mark_done STAMP FINGERPRINT
mark_done() { write_atomically "$1" printf '%s\n' "$2"; }

# begin_dir DIR: makes an empty DIR.tmp, in which the caller builds the next DIR. It is removed if the
# script fails.
begin_dir() {
    BUILDING=$1.tmp
    trap 'rm -rf "$BUILDING"' EXIT
    rm -rf "$1.tmp" "$1.old"
    mkdir -p "$1.tmp"
}

# finish_dir DIR FINGERPRINT: renames DIR.tmp to DIR. The stamp DIR/.done is inside, so
# both appear at once. A kill between the two renames leaves no DIR at all.
finish_dir() {
    mark_done "$1.tmp/.done" "$2"
    if [[ -e $1 ]]; then mv "$1" "$1.old"; fi
    mv "$1.tmp" "$1"
    trap - EXIT
    rm -rf "$1.old"
}

# set_aside DIR WHY: renames the folder of a run that no longer fits, which keeps its files.
set_aside() {
    local n=1
    while [[ -e $1.replaced-$n ]]; do n=$((n + 1)); done
    mv "$1" "$1.replaced-$n"
    say "$2: the earlier run is kept as $1.replaced-$n"
}
