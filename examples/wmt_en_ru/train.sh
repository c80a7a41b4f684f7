#!/usr/bin/env bash
# Trains a model on WMT English-Russian without UN and Paracrawl.
source "$(dirname "$0")/../lib/train.sh"
