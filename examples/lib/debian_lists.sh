# Where Debian's package lists come from, for the recipes that make their data of them: sets LISTS,
# the folder that has them. A dataset.sh sets LANGUAGES, those of the descriptions, en last, and
# sources this.

# As debian_lists.py says it: Debian packs the English descriptions by xz, translations by bzip2
MIRROR=$(printf 'main/i18n/Translation-%s.bz2, ' "${LANGUAGES[@]}")
MIRROR="take ${MIRROR/-en.bz2, /-en.xz} and main/binary-amd64/Packages.xz from https://deb.debian.org/debian/dists/stable/, put them into a folder and name it in RAW_DIR"

# lists_in FOLDER: sets FOUND_LISTS; fails where descriptions in a language are missing, or what says
# which package is of which source
lists_in() {
    local kind
    FOUND_LISTS=()
    for kind in "${LANGUAGES[@]/#/Translation-}" Packages; do
        compgen -G "$1/*$kind*" >/dev/null || return 1
        FOUND_LISTS+=("$1"/*"$kind"*)
    done
}

# lists_fingerprint: of the lists that RAW_DIR has, if any
lists_fingerprint() {
    if [[ -z ${RAW_DIR-} ]] || ! lists_in "$RAW_DIR"; then return; fi
    files_fingerprint "${FOUND_LISTS[@]}"
}

# update_lists DIR: apt-get update into a folder of its own, as any user, with descriptions, which
# images for containers leave out. The machine's own lists stay as they are, and what else it
# does after an update is left out. -c is read last, so that it can clear what was set before.
update_lists() {
    local dir=$1 text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    mkdir -p "$dir"/{lists/partial,cache/archives/partial,state}
    cat >"$dir/apt.conf" <<CONF
#clear APT::Update;
APT::Update::Error-Mode "any";
#clear Acquire::Languages;
Acquire::Languages { $(printf '"%s"; ' "${LANGUAGES[@]}")};
Dir::State "$text/state/";
Dir::State::lists "$text/lists/";
Dir::State::status "/dev/null";
Dir::Cache "$text/cache/";
Debug::NoLocking "true";
CONF
    apt-get -c "$dir/apt.conf" update >"$dir/log" 2>&1 || {
        cat "$dir/log" >&2
        return 1
    }
}

# fetch_lists DIR: from the machine's own lists, or by an update
fetch_lists() {
    local dir=$1 own
    command -v apt-get >/dev/null ||
        die "this machine has no apt to bring Debian's package lists: $MIRROR"
    eval "$(apt-config shell own Dir::State::lists/d)"
    if lists_in "$own"; then
        say "lists: those of this machine, $own"
        cp -- "${FOUND_LISTS[@]}" "$dir"
        return
    fi
    say "lists: apt-get update into a folder of its own (about 18 MB)"
    update_lists "$dir/apt" || die "apt-get update failed, its messages are above: run again when the mirror can be reached, or $MIRROR"
    lists_in "$dir/apt/lists" ||
        die "the sources of this machine's apt do not have all of the descriptions ($(joined ' ' "${LANGUAGES[@]/#/Translation-}")): $MIRROR"
    cp -- "${FOUND_LISTS[@]}" "$dir"
    rm -rf "$dir/apt"
}

# have_lists DIR: those of RAW_DIR; else those that were fetched before, which stay the same when
# Debian's change, so that a training goes on with the data it began with; else fetches them, by
# way of DIR, which is removed where that fails.
have_lists() {
    if [[ -n ${RAW_DIR-} ]]; then
        LISTS=$RAW_DIR
        return
    fi
    LISTS=$output/raw
    if [[ -f $LISTS/.done ]]; then return; fi
    mkdir -p "$1/raw"
    fetch_lists "$1/raw"
    mark_done "$1/raw/.done" lists
    rm -rf "$LISTS"
    mv "$1/raw" "$LISTS"
}
