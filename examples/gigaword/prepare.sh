#!/usr/bin/env bash
# Makes the training data of Gigaword.
source "$(dirname "$0")/../lib/prepare.sh"
