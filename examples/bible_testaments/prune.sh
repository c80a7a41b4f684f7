#!/usr/bin/env bash
# Prunes heads of the encoder of classifiers of Bible verses.
source "$(dirname "$0")/../lib/prune.sh"
