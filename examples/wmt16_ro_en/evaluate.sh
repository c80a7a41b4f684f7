#!/usr/bin/env bash
# Translates and scores the test set of WMT 2016 Romanian-English.
source "$(dirname "$0")/../lib/evaluate.sh"
