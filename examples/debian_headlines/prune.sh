#!/usr/bin/env bash
# Prunes heads of models that write titles for the descriptions of Debian's packages.
source "$(dirname "$0")/../lib/prune.sh"
