# OpenSubtitles2018 English-Russian, Voita et al. (2019).

SOURCE=en TARGET=ru
ARCHIVES=(OpenSubtitles.en-ru.txt.zip OpenSubtitles.en-ru.xml.gz)
# Validation and test pairs come from separate films, so both sizes can be changed for a trial
TRAIN_PAIRS=${TRAIN_PAIRS:-6000000} VALID_PAIRS=${VALID_PAIRS:-10000} TEST_PAIRS=${TEST_PAIRS:-10000}
SPLITS_FROM=("$TRAIN_PAIRS" "$VALID_PAIRS" "$TEST_PAIRS")
for size in TRAIN_PAIRS VALID_PAIRS TEST_PAIRS; do require_positive_integer "$size" "${!size}"; done
splits() {
    local sentences
    have OpenSubtitles.en-ru.txt.zip
    sentences=$ARCHIVE_PATH
    have OpenSubtitles.en-ru.xml.gz
    python3 "$TOOLS/corpora.py" subtitles "$sentences" "$ARCHIVE_PATH" "$SOURCE" "$TARGET" \
        "$1" "${SPLITS_FROM[@]}"
}

PRUNE_BUDGETS=27/31/46,13/17/31,6/9/13,encoder=17,encoder=4
source "$ROOT/examples/lib/paper_voita.sh"
