#!/usr/bin/env bash
# Makes the training data of a language model of WikiText-103.
source "$(dirname "$0")/../lib/prepare.sh"
