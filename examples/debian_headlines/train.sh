#!/usr/bin/env bash
# Trains a model that writes titles for the descriptions of Debian's packages.
source "$(dirname "$0")/../lib/train.sh"
