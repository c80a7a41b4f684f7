#!/usr/bin/env bash
# Holds what the papers say of sparse attention and of its heads against models trained here: trains,
# prunes, analyses and ablates them, with several seeds, on the Bible verses that come with the project
# and on descriptions of Debian's packages, and writes a table with a verdict for each claim.
source "$(dirname "$0")/../lib/claims.sh"
