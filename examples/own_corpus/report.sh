#!/usr/bin/env bash
# Holds models that were trained on two texts of your own side by side.
source "$(dirname "$0")/../lib/report.sh"
