#!/usr/bin/env bash
# Trains a model on WMT 2016 Romanian-English.
source "$(dirname "$0")/../lib/train.sh"
