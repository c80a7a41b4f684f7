#!/usr/bin/env bash
# Trains a language model of the English Bible verses that come with the project.
set -euo pipefail
# shellcheck source=examples/lib/train.sh
source "$(dirname "$0")/../lib/train.sh"
