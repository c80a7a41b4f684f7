#!/usr/bin/env bash
# Makes the training data of the Kyoto Free Translation Task, Japanese-English.
source "$(dirname "$0")/../lib/prepare.sh"
