#!/usr/bin/env bash
# Prunes heads of language models of WikiText-103.
source "$(dirname "$0")/../lib/prune.sh"
