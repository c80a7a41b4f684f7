#!/usr/bin/env bash
# Trains a language model of WikiText-103.
source "$(dirname "$0")/../lib/train.sh"
