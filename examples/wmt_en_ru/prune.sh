#!/usr/bin/env bash
# Prunes models of WMT English-Russian without UN and Paracrawl.
source "$(dirname "$0")/../lib/prune.sh"
