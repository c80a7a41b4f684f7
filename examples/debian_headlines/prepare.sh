#!/usr/bin/env bash
# Makes summarisation data of the descriptions of Debian's packages: text to title.
#
# The package lists are those of this machine where they have descriptions, else those that
# 'apt-get update' brings into the output's folder; or *Translation-en* and *Packages* in RAW_DIR.
# VOCABULARY=words:8000 takes words in place of subwords, and numbers for those outside it.
source "$(dirname "$0")/../lib/prepare.sh"
