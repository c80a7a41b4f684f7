#!/usr/bin/env bash
# Tests the papers' claims on sparse attention and its heads with models trained here: trains, prunes,
# analyses and ablates them, with several seeds, on the Bible verses that come with the project and
# on descriptions of Debian's packages, and writes a table with a verdict on each claim.
source "$(dirname "$0")/../lib/claims.sh"
