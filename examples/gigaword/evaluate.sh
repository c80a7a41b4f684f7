#!/usr/bin/env bash
# Writes and scores summaries of the test set of Gigaword.
source "$(dirname "$0")/../lib/evaluate_summaries.sh"
