#!/usr/bin/env bash
# Trains a model that translates the descriptions of Debian's packages from English to German.
source "$(dirname "$0")/../lib/train.sh"
