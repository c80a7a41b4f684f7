#!/usr/bin/env bash
# Translates and scores the test descriptions of Debian's packages, from English to German.
source "$(dirname "$0")/../lib/evaluate.sh"
