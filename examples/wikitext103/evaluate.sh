#!/usr/bin/env bash
# Measures the perplexity of a language model of WikiText-103.
source "$(dirname "$0")/../lib/evaluate_lm.sh"
