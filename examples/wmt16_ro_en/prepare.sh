#!/usr/bin/env bash
# Makes the training data of WMT 2016 Romanian-English.
source "$(dirname "$0")/../lib/prepare.sh"
