#!/usr/bin/env bash
# Prunes heads of the encoder of classifiers of SNLI.
source "$(dirname "$0")/../lib/prune.sh"
