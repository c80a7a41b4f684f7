#!/usr/bin/env bash
# Holds trained classifiers of Bible verses side by side.
source "$(dirname "$0")/../lib/report.sh"
