#!/usr/bin/env bash
# Prunes models that translate the descriptions of Debian's packages from English to German.
source "$(dirname "$0")/../lib/prune.sh"
