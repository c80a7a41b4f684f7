#!/usr/bin/env bash
# Prunes models of Gigaword.
source "$(dirname "$0")/../lib/prune.sh"
