#!/usr/bin/env bash
# Translates and scores the test set of WMT English-Russian without UN and Paracrawl.
source "$(dirname "$0")/../lib/evaluate.sh"
