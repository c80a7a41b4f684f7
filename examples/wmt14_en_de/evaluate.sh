#!/usr/bin/env bash
# Translates and scores the test set of WMT 2014 English-German.
source "$(dirname "$0")/../lib/evaluate.sh"
