#!/usr/bin/env bash
# Makes the training data of WMT 2014 English-German.
source "$(dirname "$0")/../lib/prepare.sh"
