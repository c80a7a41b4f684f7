#!/usr/bin/env bash
# Makes the training data of a language model of the English Bible verses that come with the project.
source "$(dirname "$0")/../lib/prepare.sh"
