#!/usr/bin/env bash
# Trains a model on IWSLT 2017 German-English.
source "$(dirname "$0")/../lib/train.sh"
