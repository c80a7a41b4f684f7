#!/usr/bin/env bash
# Translates the test verses with a model that train.sh has trained, scores them with
# sacreBLEU and chrF, and writes the table of the learned alpha of each head.
#
#   evaluate.sh [options] MAPPING
#
#   MAPPING, --output DIR, --epochs N, --name NAME
#                  name the run, exactly as they were given to train.sh
#   --cpu, --gpu   where to translate (default: a GPU where torch finds one, else the CPU)
#   --help         this text
#
# Writes test.hyp, test.ref, scores.txt and alpha.txt to the run's folder. Needs
# fairseq-generate, sacrebleu and fairseq-entmax on PATH. Can be run again: what is done
# for the same checkpoint is skipped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/common.sh
source "$here/../common.sh"

BEAM=5

parse_run_options "$(cd "$here/../.." && pwd)/quickstart" "$@"
((${#REST[@]} == 0)) || usage_error "unknown argument '${REST[0]}' after the mapping: leave it out"

require_commands python3 fairseq-generate sacrebleu fairseq-entmax
hold_lock "$OUTPUT"
checkpoint=$RUN/checkpoints/checkpoint_best.pt
[[ -f $RUN/.train.done && -f $checkpoint ]] ||
    die "no finished training in $RUN: run train.sh with the same options first"
device=$(choose_device "$DEVICE")
run=$(basename "$RUN")

# --- test.hyp, test.ref ------------------------------------------------------

# ordered_hypotheses FILE: fairseq-generate lists sentences by length; H-<line> has the line.
ordered_hypotheses() {
    { grep '^H-' "$1" || true; } | cut -c 3- | LC_ALL=C sort -n -k 1,1 | cut -f 3-
}

translate() {
    local generated=$RUN/generate.tmp user_dir found expected
    local on_device=(--distributed-world-size 1)
    if [[ $device == cpu ]]; then on_device+=(--cpu); fi
    user_dir=$(fairseq-entmax user-dir)
    rm -rf "$generated"
    # Multiple 1: with its default of 8, current fairseq leaves out up to 7 test sentences.
    fairseq-generate "$OUTPUT/data-bin" --user-dir "$user_dir" \
        --task translation --source-lang es --target-lang en --gen-subset test \
        --path "$checkpoint" --beam "$BEAM" --remove-bpe sentencepiece \
        --max-tokens 4000 --required-batch-size-multiple 1 --num-workers 0 --seed 1 "${on_device[@]}" \
        --log-format simple --results-path "$generated" >"$RUN/generate.log" 2>&1 || {
        tail -n 30 "$RUN/generate.log" >&2
        die "fairseq-generate failed: its last messages are above, all of them in $RUN/generate.log"
    }
    ordered_hypotheses "$generated/generate-test.txt" >"$RUN/test.hyp.tmp"
    found=$(wc -l <"$RUN/test.hyp.tmp") expected=$(wc -l <"$OUTPUT/text/test.en")
    ((found == expected)) || die "fairseq-generate wrote $found translations for $expected test verses: see $generated/generate-test.txt"
    mv -f "$RUN/test.hyp.tmp" "$RUN/test.hyp"
    write_whole "$RUN/test.ref" cat "$OUTPUT/text/test.en"
    rm -rf "$generated"
}

data=$(files_fingerprint "$OUTPUT"/data-bin/dict.*.txt "$OUTPUT"/data-bin/test.* "$OUTPUT/text/test.en")
step=$(fingerprint translate "$(sha256_of "$checkpoint")" "$data" "$BEAM" "$device")
if is_done "$RUN/.translate.done" "$step" "$RUN/test.hyp" "$RUN/test.ref"; then
    say "translate $run: done before"
else
    say "translate $run on $device: $(wc -l <"$OUTPUT/text/test.en") test verses, beam $BEAM (some minutes on a CPU; $RUN/generate.log)"
    rm -f "$RUN/.translate.done"
    translate
    mark_done "$RUN/.translate.done" "$step"
fi

# --- scores.txt --------------------------------------------------------------

step=$(fingerprint scores "$(files_fingerprint "$RUN/test.hyp" "$RUN/test.ref")")
if is_done "$RUN/.scores.done" "$step" "$RUN/scores.txt"; then
    say "score $run: done before"
else
    say "score $run: sacreBLEU and chrF"
    rm -f "$RUN/.scores.done"
    write_whole "$RUN/scores.txt" sacrebleu "$RUN/test.ref" --input "$RUN/test.hyp" \
        --metrics bleu chrf --format text --width 2
    mark_done "$RUN/.scores.done" "$step"
fi

# --- alpha.txt ---------------------------------------------------------------

step=$(fingerprint alpha "$(sha256_of "$checkpoint")")
if is_done "$RUN/.alpha.done" "$step" "$RUN/alpha.txt"; then
    say "alpha table $run: done before"
else
    say "alpha table $run"
    rm -f "$RUN/.alpha.done"
    write_whole "$RUN/alpha.txt" fairseq-entmax alpha "$checkpoint"
    mark_done "$RUN/.alpha.done" "$step"
fi

cat "$RUN/scores.txt"
say "results: $RUN"
