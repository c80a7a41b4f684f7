#!/usr/bin/env bash
# Makes training data of SNLI: premise, hypothesis, and whether the one entails the other.
source "$(dirname "$0")/../lib/prepare_classifier.sh"
