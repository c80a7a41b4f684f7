# The virtual environment of the project. Source it after examples/lib/common.sh.
#
# shellcheck shell=bash

OLDEST_PYTHON=3.11
PRINT_VERSION='import sys; print("%d.%d" % sys.version_info[:2])'

# require_python PYTHON: fails unless it is there and new enough.
require_python() {
    local version
    command -v "$1" >/dev/null ||
        die "PYTHON is '$1', and there is no such command: install Python $OLDEST_PYTHON or 3.12, or set PYTHON to one"
    version=$("$1" -c "$PRINT_VERSION") ||
        die "PYTHON is '$1', and it does not run as a Python: set PYTHON to a Python $OLDEST_PYTHON or 3.12"
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] < tuple(map(int, sys.argv[1].split("."))))' "$OLDEST_PYTHON" ||
        die "PYTHON is '$1', which is Python $version, and $OLDEST_PYTHON or newer is needed: set PYTHON, such as PYTHON=python3.12"
}

# drop_half_installed DIR: pip writes a package's INSTALLER file after its modules and
# commands. Killed before, it leaves a package that looks installed to the next pip.
drop_half_installed() {
    local folder package
    if [[ ! -e $1/.fairseq-entmax-venv ]]; then return; fi # somebody else's: not ours to repair
    folder=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for package in "$folder"/*.dist-info; do
        if [[ -d $package && ! -e $package/INSTALLER ]]; then
            say "install: $(basename "$package") was left half installed and is installed anew"
            rm -rf "$package"
        fi
    done
}

# install_project ROOT DIR EXTRAS: into the virtual environment DIR, then proves it.
install_project() {
    local root=$1 python=$2/bin/python extras=$3
    drop_half_installed "$2"
    (cd "$root" && "$python" -m pip install --disable-pip-version-check -c constraints.txt -e ".${extras:+[$extras]}") ||
        die "pip could not install the project: its message is above; run again to go on"
    "$python" -c 'import torch, fairseq_entmax' ||
        die "what pip installed in $2 does not import: remove that folder and run again"
    if [[ ,$extras, == *,fairseq,* ]]; then
        "$python" -c 'import fairseq, sacrebleu, sentencepiece' || die "what the extra fairseq installed in $2 does not import: remove that folder and run again"
        [[ -x $2/bin/fairseq-train ]] || die "$2/bin/fairseq-train is missing: remove that folder and run again"
    fi
}

# make_venv DIR: by $PYTHON, unless DIR is a virtual environment already. One that was
# interrupted while it was made is made anew; one that somebody else made is left alone.
make_venv() {
    local dir=$1 base=${PYTHON:-python3} ours=$1/.fairseq-entmax-venv
    if [[ -e $ours ]]; then
        if [[ $(<"$ours") == made ]]; then return; fi
    elif [[ -f $dir/pyvenv.cfg ]]; then
        return
    fi
    say "virtual environment: $dir"
    echo begun >"$ours"
    "$base" -m venv "$dir" ||
        die "'$base -m venv' failed: install the venv module of this Python (python3-venv on Debian and Ubuntu), or set PYTHON"
    write_whole "$ours" echo made
}

# require_venv_python DIR: fails when its Python is broken, or not the one asked for.
require_venv_python() {
    local version wanted
    version=$("$1/bin/python" -c "$PRINT_VERSION" 2>/dev/null) ||
        die "the virtual environment $1 has no Python that runs: remove that folder and run again"
    wanted=$("${PYTHON:-$1/bin/python}" -c "$PRINT_VERSION")
    [[ $version == "$wanted" ]] ||
        die "the virtual environment $1 has Python $version, and PYTHON is '$PYTHON', which is Python $wanted: remove that folder, or set VENV to another"
    require_python "$1/bin/python"
}

# ensure_venv DIR EXTRAS: the virtual environment DIR, made by $PYTHON (default python3)
# where it is missing, has the project installed, editable, with the extras named
# ("fairseq", "fairseq,dev"). Skipped when the stamp in DIR says that it was done for
# the same setup.py, constraints.txt, Python version and extras. Two at once take turns.
ensure_venv() {
    local dir=$1 extras=$2 root
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    require_python "${PYTHON:-python3}"
    if [[ -e $dir && ! -f $dir/pyvenv.cfg ]] && ! is_begun_or_empty "$dir"; then
        die "VENV is '$dir', which is there and is no virtual environment: set VENV to another folder"
    fi
    mkdir -p "$dir"
    (
        exec 8>>"$dir/.fairseq-entmax-lock"
        "${PYTHON:-python3}" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX)'
        make_venv "$dir"
        require_venv_python "$dir"
        local stamp=$dir/.fairseq-entmax-installed step
        step=$(fingerprint "$root" "$extras" "$("$dir/bin/python" -c 'import sys; print(sys.version)')" \
            "$(files_fingerprint "$root/setup.py" "$root/constraints.txt")")
        if is_done "$stamp" "$step" "$dir/bin/fairseq-entmax"; then
            say "install: done before in $dir"
        else
            say "install: the project${extras:+ with the extras $extras} in $dir"
            rm -f "$stamp"
            install_project "$root" "$dir" "$extras"
            mark_done "$stamp" "$step"
        fi
    )
}

# is_begun_or_empty DIR: nothing of anybody else's is in it.
is_begun_or_empty() {
    [[ -d $1 ]] || return 1
    [[ -e $1/.fairseq-entmax-lock || -z $(ls -A "$1") ]]
}
