#!/usr/bin/env bash
# Classifies the test verses, scores them, and shows the words that attention selects.
source "$(dirname "$0")/../lib/evaluate_classifier.sh"
