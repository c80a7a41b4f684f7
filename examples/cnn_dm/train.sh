#!/usr/bin/env bash
# Trains a model on CNN/Daily Mail.
source "$(dirname "$0")/../lib/train.sh"
