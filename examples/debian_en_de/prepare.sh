#!/usr/bin/env bash
# Makes English-German training data of the descriptions of Debian's packages.
#
# The package lists are those of this machine where they have German descriptions, else those that
# 'apt-get update' brings into the output's folder; or *Translation-en*, *Translation-de* and
# *Packages* in RAW_DIR. BPE_SIZE is the number of subwords (default: 4000).
source "$(dirname "$0")/../lib/prepare.sh"
