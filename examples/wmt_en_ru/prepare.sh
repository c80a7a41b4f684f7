#!/usr/bin/env bash
# Makes the training data of WMT English-Russian without UN and Paracrawl.
source "$(dirname "$0")/../lib/prepare.sh"
