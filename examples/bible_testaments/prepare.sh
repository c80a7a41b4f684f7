#!/usr/bin/env bash
source "$(dirname "$0")/../lib/prepare_classifier.sh"
