#!/usr/bin/env bash
# Translates and scores the test set of two texts of your own.
source "$(dirname "$0")/../lib/evaluate.sh"
