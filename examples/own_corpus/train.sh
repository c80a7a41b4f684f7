#!/usr/bin/env bash
# Trains a model on two texts of your own.
source "$(dirname "$0")/../lib/train.sh"
