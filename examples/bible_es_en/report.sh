#!/usr/bin/env bash
source "$(dirname "$0")/../lib/report.sh"
