# Makes the virtual environment of the project. Source this after examples/lib/common.sh.
#
# shellcheck shell=bash

PYTHONS=$(sed -n 's/^PYTHONS = (\(.*\))$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/../../setup.py" | tr -d '",')
OLDEST_PYTHON=${PYTHONS%% *}
NEWEST_PYTHON=${PYTHONS##* } # of those that are tested
TORCH_FOR_CPUS=https://download.pytorch.org/whl/cpu
PRINT_VERSION='import sys; print("%d.%d" % sys.version_info[:2])'

# require_python PYTHON: fails unless it is there and new enough.
require_python() {
    local version
    command -v "$1" >/dev/null ||
        die "PYTHON is '$1', which is not a command: install Python $OLDEST_PYTHON to $NEWEST_PYTHON, or set PYTHON to one of them"
    version=$("$1" -c "$PRINT_VERSION") ||
        die "PYTHON is '$1', which does not run as Python: set PYTHON to Python $OLDEST_PYTHON to $NEWEST_PYTHON"
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] < tuple(map(int, sys.argv[1].split("."))))' "$OLDEST_PYTHON" ||
        die "PYTHON is '$1', which is Python $version, but $OLDEST_PYTHON or newer is needed: set PYTHON, for example PYTHON=python3.12"
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] > tuple(map(int, sys.argv[1].split("."))))' "$NEWEST_PYTHON" ||
        say "Python $version is newer than $NEWEST_PYTHON, the newest that this is tested with: if it fails, set PYTHON to another"
}

# drop_half_installed DIR: pip writes a package's INSTALLER file after its modules and
# commands. If killed before that, it leaves a package that looks installed to the next pip.
drop_half_installed() {
    local folder package
    if [[ ! -e $1/.fairseq-entmax-venv ]]; then return; fi # somebody else's: not ours to repair
    folder=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    for package in "$folder"/*.dist-info; do
        if [[ -d $package && ! -e $package/INSTALLER ]]; then
            say "install: $(basename "$package") was only partly installed and is installed again"
            rm -rf "$package"
        fi
    done
}

has_nvidia_gpu() {
    [[ -e /dev/nvidia0 ]] || nvidia-smi -L 2>/dev/null | grep -q '^GPU'
}

# torch_build: prints which build of torch suits this machine, cpu or cuda. The package index has
# the one with CUDA for Linux; other systems have only one build, for which this prints cuda.
torch_build() {
    case ${TORCH_BUILD:-} in
    '') if [[ $(uname -s) != Linux ]] || has_nvidia_gpu; then echo cuda; else echo cpu; fi ;;
    cpu | cuda) echo "$TORCH_BUILD" ;;
    *) die "TORCH_BUILD is '$TORCH_BUILD': set it to cpu or cuda, or leave it out" ;;
    esac
}

# install_torch ROOT DIR BUILD: on Linux, installs the build of torch for this machine, where pip
# would take another. A machine without a GPU keeps a build with CUDA that is installed.
install_torch() {
    local python=$2/bin/python version present why
    [[ $(uname -s) == Linux ]] || return 0
    version=$(sed -n 's/^torch==\([^ ;]*\).*/\1/p' "$1/constraints.txt")
    # Such as 2.13.0+cpu; empty if there is none
    present=$("$python" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null) || :
    if [[ $3 == cuda ]]; then
        if [[ $present != *+cpu && ${present%%+*} == "$version" ]]; then return; fi
        say "install: torch $version with CUDA, some 3 GB to download"
        # Unlike ==, === takes no build for CPUs
        "$python" -m pip install --disable-pip-version-check -c "$1/constraints.txt" "torch===$version" ||
            die "pip could not install torch: its message is above; run again to continue"
    elif [[ ${present%%+*} != "$version" ]]; then
        say "install: torch $version for CPUs, some 200 MB to download (no NVIDIA GPU was found, or TORCH_BUILD is cpu; TORCH_BUILD=cuda selects the build for GPUs)"
        if ! why=$("$python" -m pip install --quiet --disable-pip-version-check --no-deps --retries 1 --timeout 30 \
            --index-url "$TORCH_FOR_CPUS" "torch==$version+cpu" 2>&1); then
            say "install: pip could not get it from $TORCH_FOR_CPUS ($(grep -m 1 '^ERROR' <<<"$why" || tail -n 1 <<<"$why"))"
            say "install: the build with CUDA is used instead, some 3 GB to download"
        fi
    fi
}

# compile_fairseq ROOT DIR: for machines on which fairseq comes as source (see the extra in setup.py).
# pip alone would install another torch to compile it with.
compile_fairseq() {
    local python=$2/bin/python
    if "$python" -c 'from importlib.metadata import version; version("fairseq-fixed")' 2>/dev/null; then return; fi
    command -v c++ >/dev/null ||
        die "there is no C++ compiler, but fairseq has to be compiled for this machine and Python: install one (g++ on Debian and Ubuntu, Xcode's command line tools on macOS), or on Linux on x86-64 use Python 3.11 or 3.12"
    say "install: fairseq, which is compiled for this machine and Python (some minutes)"
    (cd "$1" && "$python" -m pip install --disable-pip-version-check -c constraints.txt torch numpy cython setuptools wheel &&
        "$python" -m pip install --disable-pip-version-check -c constraints.txt --no-build-isolation fairseq-fixed) ||
        die "pip could not install fairseq: its message is above; run again to continue"
}

# has_fairseq_wheel DIR: whether its Python is one for which setup.py requires a wheel of fairseq
has_fairseq_wheel() {
    case "$(uname -s -m) $("$1/bin/python" -c "$PRINT_VERSION")" in
    'Linux x86_64 3.11' | 'Linux x86_64 3.12') return 0 ;;
    *) return 1 ;;
    esac
}

# install_project ROOT DIR EXTRAS BUILD: installs into the virtual environment DIR, then checks it.
install_project() {
    local root=$1 python=$2/bin/python extras=$3
    drop_half_installed "$2"
    install_torch "$root" "$2" "$4"
    say "install: the project${extras:+ with the extras $extras} in $2"
    if [[ ,$extras, == *,fairseq,* ]] && ! has_fairseq_wheel "$2"; then compile_fairseq "$root" "$2"; fi
    (cd "$root" && timed install "$python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".${extras:+[$extras]}") ||
        die "pip could not install the project: its message is above; run again to continue"
    "$python" -c 'import torch, fairseq_entmax' ||
        die "the packages that pip installed in $2 cannot be imported: remove that folder and run again"
    if [[ ,$extras, == *,fairseq,* ]]; then
        "$python" -c 'import logging; logging.disable(); import fairseq, sacrebleu, sentencepiece' || die "the packages of the extra fairseq in $2 cannot be imported: remove that folder and run again"
        [[ -x $2/bin/fairseq-train ]] || die "$2/bin/fairseq-train is missing: remove that folder and run again"
    fi
}

# make_venv DIR: makes it with $PYTHON, unless DIR is a virtual environment already. One whose
# making was interrupted is made again; one that somebody else made is left alone.
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
    write_atomically "$ours" echo made
}

# require_venv_python DIR: fails if its Python is broken, or not the one asked for.
require_venv_python() {
    local version wanted
    version=$("$1/bin/python" -c "$PRINT_VERSION" 2>/dev/null) ||
        die "the virtual environment $1 has no working Python: remove that folder and run again"
    wanted=$("${PYTHON:-$1/bin/python}" -c "$PRINT_VERSION")
    [[ $version == "$wanted" ]] ||
        die "the virtual environment $1 has Python $version, but PYTHON is '$PYTHON', which is Python $wanted: remove that folder, or set VENV to another"
    require_python "$1/bin/python"
}

# ensure_venv DIR EXTRAS: makes the virtual environment DIR with $PYTHON (default python3) if it
# is missing, and installs the project, editable, with the named extras ("fairseq",
# "fairseq,dev"). Skipped if the stamp in DIR says that this was done for the same setup.py,
# constraints.txt, Python version, build of torch and extras. Concurrent calls take turns.
ensure_venv() {
    local dir=$1 extras=$2 root build
    build=$(torch_build)
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    require_python "${PYTHON:-python3}"
    # Missing, made, begun by this function, or empty
    [[ ! -e $dir || -f $dir/pyvenv.cfg || -e $dir/.fairseq-entmax-lock || -z $(ls -A "$dir") ]] ||
        die "VENV is '$dir', which exists but is not a virtual environment: set VENV to another folder"
    mkdir -p "$dir"
    (
        exec 8>>"$dir/.fairseq-entmax-lock"
        "${PYTHON:-python3}" -c 'import fcntl; fcntl.flock(8, fcntl.LOCK_EX)'
        make_venv "$dir"
        require_venv_python "$dir"
        local stamp=$dir/.fairseq-entmax-installed step
        step=$(fingerprint "$root" "$extras" "$build" "$("$dir/bin/python" -c 'import sys; print(sys.version)')" \
            "$(files_fingerprint "$root/setup.py" "$root/constraints.txt")")
        if is_done "$stamp" "$step" "$dir/bin/fairseq-entmax"; then
            say "install: already done in $dir"
        else
            rm -f "$stamp"
            install_project "$root" "$dir" "$extras" "$build"
            mark_done "$stamp" "$step"
        fi
    )
}
