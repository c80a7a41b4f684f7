#!/usr/bin/env bash
# Makes a virtual environment for the tests, installs the project into it, and runs every
# check: style, types, the floors of the architecture, constraints, shell scripts, tests.
#
#   scripts/test.sh [--quick] [options of pytest]
#
#   --quick   for use while working on a change: style, types, floors, shell scripts, and the tests
#             of the package's folders that are not marked slow. Takes two minutes on two cores.
#             Leaves out recipes, trainings, attacks, constraints, the browser, and Triton without
#             a GPU, which continuous integration runs, with this command and no option.
#   --help    this text
#
# Environment: VENV is the virtual environment (default: .venv-test in the project's
# folder), PYTHON the Python that makes it (default: python3; setup.py lists those that are
# tested), and TORCH_BUILD the build of torch on Linux, cpu or cuda (default: cuda if there is an
# NVIDIA GPU, else cpu).
# Exits with 0 only if every check passed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/lib/common.sh
source "$root/examples/lib/common.sh"
# shellcheck source=scripts/lib/venv.sh
source "$root/scripts/lib/venv.sh"
quick=false
case ${1:-} in
--help | -h) print_head_comment "$0" && exit 0 ;;
--quick) quick=true && shift ;;
esac
venv=$(absolute_path "${VENV:-$root/.venv-test}")
ensure_venv "$venv" fairseq,recipes,tagger,test
export PATH=$venv/bin:$PATH
cd "$root"

failed=()
check() {
    local name=$1
    shift
    say "$name: $*"
    "$@" || failed+=("$name")
}
shell_scripts=()
while IFS= read -r script; do
    shell_scripts+=("$script")
done < <(find scripts examples .ci -type f \( -name '*.sh' -o -path '.ci/run' \) | sort)
check style ruff check .
check format ruff format --check .
check types mypy
check tool-types env MYPYPATH=examples/tools mypy examples/tools docs/site/hooks.py
check floors lint-imports
if ! $quick; then check constraints python scripts/constraints.py check; fi
check shell shellcheck -x "${shell_scripts[@]}"
# As many tests at a time as there are cores, each on one core
export OMP_NUM_THREADS=1
chosen=()
if $quick; then
    chosen=(-m "not slow")
    for folder in tests/*/; do
        if [[ -d fairseq_entmax/${folder#tests/} ]]; then chosen+=("$folder"); fi
    done
fi
check tests python -m pytest --numprocesses auto --dist worksteal --durations=10 \
    "${chosen[@]}" "$@"

if ((${#failed[@]} > 0)); then die "failed: ${failed[*]}"; fi
if $quick; then say "every quick check passed; run without --quick for all checks"; else say "every check passed"; fi
