#!/usr/bin/env bash
# Makes the training data of IWSLT 2017 German-English.
source "$(dirname "$0")/../lib/prepare.sh"
