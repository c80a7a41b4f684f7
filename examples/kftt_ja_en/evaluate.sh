#!/usr/bin/env bash
# Translates and scores the test set of the Kyoto Free Translation Task, Japanese-English.
source "$(dirname "$0")/../lib/evaluate.sh"
