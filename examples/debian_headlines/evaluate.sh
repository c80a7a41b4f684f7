#!/usr/bin/env bash
# Writes titles for the test descriptions of Debian's packages, and scores them by ROUGE.
source "$(dirname "$0")/../lib/evaluate_summaries.sh"
