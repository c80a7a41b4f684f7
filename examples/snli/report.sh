#!/usr/bin/env bash
# Holds trained classifiers of SNLI side by side.
source "$(dirname "$0")/../lib/report.sh"
