#!/usr/bin/env bash
# Translates and scores the test set of the Spanish-English Bible verses that come with the project.
source "$(dirname "$0")/../lib/evaluate.sh"
