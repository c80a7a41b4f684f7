#!/usr/bin/env bash
# Prunes models of the Spanish-English Bible verses that come with the project.
source "$(dirname "$0")/../lib/prune.sh"
