#!/usr/bin/env bash
# Trains a classifier of the pairs of SNLI.
source "$(dirname "$0")/../lib/train.sh"
