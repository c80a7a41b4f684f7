# For recipes that make their data from Debian's package lists. Before it sources this, a dataset.sh sets
# LANGUAGES (of the descriptions), PROGRAM (which makes the splits), VALID_SOURCES and TEST_SOURCES (source
# packages per thousand for validation and test), and optionally SPLIT_SEED.

DEBIAN_MIRROR=${DEBIAN_MIRROR:-https://deb.debian.org/debian}

# lists_fingerprint: the fingerprint of the lists in RAW_DIR, if it is set
lists_fingerprint() {
    local kind
    if [[ -z ${RAW_DIR-} ]]; then return; fi
    for kind in "${LANGUAGES[@]/#/Translation-}" Packages; do
        if compgen -G "$RAW_DIR/*$kind*" >/dev/null; then files_fingerprint "$RAW_DIR"/*"$kind"*; fi
    done
}

SPLITS_FROM=("$VALID_SOURCES" "$TEST_SOURCES" ${SPLIT_SEED:+"$SPLIT_SEED"}
    "$(files_fingerprint "$RECIPE/$PROGRAM" "$TOOLS/debian_lists.py")" "$(lists_fingerprint)")

splits() {
    have_lists
    PYTHONPATH=$TOOLS${PYTHONPATH:+:$PYTHONPATH} python3 "$RECIPE/$PROGRAM" "$LISTS" "$1" \
        --valid "$VALID_SOURCES" --test "$TEST_SOURCES" ${SPLIT_SEED:+--seed "$SPLIT_SEED"}
}

# have_lists: sets LISTS, the folder of the lists. Without RAW_DIR they are fetched once and kept, even when Debian's
# change, so that a training resumes with the data it began with.
have_lists() {
    local list language place=$DEBIAN_MIRROR/dists/stable/main
    # Debian compresses the English descriptions with xz, and translations with bzip2
    local lists=(binary-amd64/Packages.xz i18n/Translation-en.xz)
    LISTS=${RAW_DIR:-$output/raw}
    if [[ -n ${RAW_DIR-} || -f $LISTS/.done ]]; then return; fi
    say "lists: downloading from $place (about 18 MB)"
    mkdir -p "$LISTS"
    for language in "${LANGUAGES[@]}"; do
        if [[ $language != en ]]; then lists+=("i18n/Translation-$language.bz2"); fi
    done
    for list in "${lists[@]}"; do
        curl --fail --location --silent --show-error --retry 3 --output "$LISTS/$(basename "$list")" "$place/$list" ||
            die "$place/$list could not be downloaded, for the reason above: run again, name another mirror in DEBIAN_MIRROR, or set RAW_DIR to a folder with the lists, such as apt's own, /var/lib/apt/lists"
    done
    mark_done "$LISTS/.done" lists
}
