#!/usr/bin/env bash
# Trains a model on the Spanish-English Bible verses that come with the project.
source "$(dirname "$0")/../lib/train.sh"
