#!/usr/bin/env bash
# Trains a classifier of Bible verses.
source "$(dirname "$0")/../lib/train.sh"
