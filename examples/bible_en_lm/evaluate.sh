#!/usr/bin/env bash
# Measures the perplexity of a language model of the English Bible verses that come with the project.
source "$(dirname "$0")/../lib/evaluate_lm.sh"
