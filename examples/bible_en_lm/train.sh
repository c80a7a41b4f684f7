#!/usr/bin/env bash
# Trains a language model of the English Bible verses that come with the project.
source "$(dirname "$0")/../lib/train.sh"
