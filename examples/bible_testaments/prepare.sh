#!/usr/bin/env bash
# Makes a classification task of the Bible verses that come with the project: an English verse to
# its testament, or to its book.
source "$(dirname "$0")/../lib/prepare_classifier.sh"
