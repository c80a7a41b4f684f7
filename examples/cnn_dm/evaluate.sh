#!/usr/bin/env bash
# Writes and scores summaries of the test set of CNN/Daily Mail.
source "$(dirname "$0")/../lib/evaluate_summaries.sh"
