#!/usr/bin/env bash
# Makes the training data of the bible_es_en recipe: splits the shipped corpus, learns a
# joint BPE on the training text, cuts all text with it and binarises it for fairseq.
#
#   prepare.sh [--output DIR]
#
#   --output DIR   where to write text/, spm/ and data-bin/ (default: quickstart/ in the
#                  project's folder)
#   --help         this text
#
# Needs fairseq-preprocess on PATH. Can be run again: what is done is skipped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/common.sh
source "$here/../common.sh"

SEED=1
VALID=1000
TEST=1000
VOCAB=2000

output=$(cd "$here/../.." && pwd)/quickstart
while (($# > 0)); do
    case $1 in
    --output) require_value "$1" $# && require_plain_path "$1" "$2" && output=$(absolute_path "$2") && shift ;;
    --help | -h) print_head_comment "$0" && exit 0 ;;
    *) usage_error "unknown option '$1': use --output or --help" ;;
    esac
    shift
done

require_commands python3 fairseq-preprocess
hold_lock "$output"

corpus=$here/data/bible.es-en.tsv.xz
bpe=$here/../tools/bpe.py

corpus_sha256=$(sha256_of "$corpus")
expected_sha256=$(cut -d' ' -f1 "$here/data/SHA256SUMS")
[[ $corpus_sha256 == "$expected_sha256" ]] ||
    die "$corpus has the SHA-256 $corpus_sha256, expected $expected_sha256: the file is damaged, fetch it anew"

# --- text/: the three splits -------------------------------------------------

step=$(fingerprint split "$corpus_sha256" "$(sha256_of "$here/split.py")" "$SEED" "$VALID" "$TEST")
if is_done "$output/text/.done" "$step"; then
    say "split: done before"
else
    say "split: $VALID validation and $TEST test verses (seed $SEED), the rest for training"
    begin_dir "$output/text"
    python3 "$here/split.py" "$corpus" "$output/text.tmp" --valid "$VALID" --test "$TEST" --seed "$SEED"
    finish_dir "$output/text" "$step"
fi

# --- spm/: the subword model and the text cut with it ------------------------

step=$(fingerprint spm "$step" "$(sha256_of "$bpe")" "$VOCAB")
if is_done "$output/spm/.done" "$step"; then
    say "subwords: done before"
else
    say "subwords: a joint BPE of $VOCAB pieces, learned on the training text"
    begin_dir "$output/spm"
    python3 "$bpe" learn --vocab "$VOCAB" --model "$output/spm.tmp/bpe.model" \
        "$output/text/train.es" "$output/text/train.en"
    for split in train valid test; do
        for language in es en; do
            python3 "$bpe" encode --model "$output/spm.tmp/bpe.model" \
                <"$output/text/$split.$language" >"$output/spm.tmp/$split.$language"
        done
    done
    finish_dir "$output/spm" "$step"
fi

# --- data-bin/: what fairseq-train reads -------------------------------------

step=$(fingerprint data-bin "$step" joined)
if is_done "$output/data-bin/.done" "$step"; then
    say "binarise: done before"
else
    say "binarise: fairseq-preprocess with one dictionary for both languages"
    begin_dir "$output/data-bin"
    # Its long listing of settings is in data-bin/preprocess.log for who wants it.
    log=$output/data-bin.tmp/console.log
    fairseq-preprocess --source-lang es --target-lang en --joined-dictionary \
        --trainpref "$output/spm/train" --validpref "$output/spm/valid" --testpref "$output/spm/test" \
        --destdir "$output/data-bin.tmp" --workers 1 >"$log" 2>&1 || {
        cat "$log" >&2
        die "fairseq-preprocess failed: its messages are above"
    }
    rm -f "$log"
    finish_dir "$output/data-bin" "$step"
fi
say "data ready: $output/data-bin"
