#!/usr/bin/env bash
# Trains a model on Gigaword.
source "$(dirname "$0")/../lib/train.sh"
