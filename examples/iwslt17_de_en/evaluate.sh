#!/usr/bin/env bash
# Translates and scores the test set of IWSLT 2017 German-English.
source "$(dirname "$0")/../lib/evaluate.sh"
