#!/usr/bin/env bash
# Makes the training data of a language model of the English Bible verses that come with the project.
set -euo pipefail
# shellcheck source=examples/lib/prepare.sh
source "$(dirname "$0")/../lib/prepare.sh"
