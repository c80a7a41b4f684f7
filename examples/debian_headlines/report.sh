#!/usr/bin/env bash
# Holds trained models that write titles side by side.
source "$(dirname "$0")/../lib/report.sh"
