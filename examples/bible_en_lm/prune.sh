#!/usr/bin/env bash
# Prunes heads of language models of the English Bible verses that come with the project.
source "$(dirname "$0")/../lib/prune.sh"
