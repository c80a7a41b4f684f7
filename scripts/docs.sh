#!/usr/bin/env bash
# Makes the site of the documentation, site/index.html, and checks the links between its pages.
#
#   scripts/docs.sh [--help]
#
# Environment: VENV (default: .venv-docs), PYTHON and TORCH_BUILD, as for scripts/test.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/lib/common.sh
source "$root/examples/lib/common.sh"
# shellcheck source=scripts/lib/venv.sh
source "$root/scripts/lib/venv.sh"
case ${1:-} in '') ;; --help | -h) print_head_comment "$0" && exit 0 ;; *) usage_error "unknown option '$1'" ;; esac
venv=$(absolute_path "${VENV:-$root/.venv-docs}")
ensure_venv "$venv" docs
cd "$root" # NO_…: the theme's note on what comes after it in 2027
NO_MKDOCS_2_WARNING=1 exec "$venv/bin/mkdocs" build --strict
