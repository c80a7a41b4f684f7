#!/usr/bin/env bash
# Trains a model on WMT 2014 English-German.
source "$(dirname "$0")/../lib/train.sh"
