#!/usr/bin/env bash
# Makes the training data of CNN/Daily Mail.
source "$(dirname "$0")/../lib/prepare.sh"
