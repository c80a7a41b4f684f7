#!/usr/bin/env bash
# Holds models that translate the descriptions of Debian's packages side by side.
source "$(dirname "$0")/../lib/report.sh"
