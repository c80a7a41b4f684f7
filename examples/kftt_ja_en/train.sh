#!/usr/bin/env bash
# Trains a model on the Kyoto Free Translation Task, Japanese-English.
source "$(dirname "$0")/../lib/train.sh"
