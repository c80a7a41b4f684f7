#!/usr/bin/env bash
# Makes training data of two texts of your own, a text and its translation.
source "$(dirname "$0")/../lib/prepare.sh"
