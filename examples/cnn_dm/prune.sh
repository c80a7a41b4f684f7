#!/usr/bin/env bash
# Prunes models of CNN/Daily Mail.
source "$(dirname "$0")/../lib/prune.sh"
