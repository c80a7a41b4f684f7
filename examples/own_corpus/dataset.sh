# Two texts of your own, a text and its translation; see README.md.
#
# What other recipes say in their dataset.sh, options say here: those of prepare.sh to the text, those of
# train.sh to the model and its training, those of evaluate.sh to the search. train.sh and evaluate.sh
# find languages and subwords in what prepare.sh wrote.

SOURCE=src TARGET=tgt
TOKENIZER=none
SUBWORDS=sentencepiece:4000
TEXT_BY_OPTIONS=1
SIZE_OPTION=--bpe-size # of which bpe.py speaks
LENGTH_UNIT=epochs LENGTH=10
CPU_LOG_INTERVAL=10 # where an update takes 3 seconds, a line each half minute
BATCH_TOKENS=1250 # of --size small, as are the next
MOST_TOKENS=4096
MODELS=(stock entmax)
MODELS_HELP="stock is fairseq's own transformer;
                 softmax, sparsemax, entmax15, entmax, fusedmax, entmax:alpha=1.33, ..."

declare -A GIVEN=() # option to its value

# --- options -----------------------------------------------------------------

# Of each kind of value a pattern, and what a message asks for
declare -A PATTERN=(
    [whole]='[1-9][0-9]{0,8}' [natural]='0|[1-9][0-9]{0,8}' [fraction]='0?\.[0-9]+|0'
    [decimal]='[0-9]+(\.[0-9]+)?|\.[0-9]+' [ratio]='[1-9][0-9]*(\.[0-9]+)?'
    [positive]='0*[1-9][0-9]*(\.[0-9]+)?|0*\.0*[1-9][0-9]*|0+\.0*[1-9][0-9]*|[1-9](\.[0-9]+)?e-[0-9]+'
    [name]='[A-Za-z][A-Za-z0-9_]{0,31}' [file]='.+'
    [bpe]='sentencepiece|subword-nmt|none' [size]='small|medium|base' [norm]='pre|post'
)
declare -A ASKED=(
    [whole]='a whole number of at least 1' [natural]='a whole number of at least 0'
    [fraction]='a number from 0 to below 1' [decimal]='a number of at least 0'
    [ratio]='a number of at least 1' [positive]='a number above 0, such as 0.0005'
    [name]='a short name of letters, digits and _, such as de; it need not be a known language'
    [file]='a file' [bpe]='sentencepiece, subword-nmt or none' [size]='small, medium or base' [norm]='pre or post'
)
declare -A KIND=() # of SCRIPT:OPTION
# kind KIND SCRIPT OPTION...
kind() {
    local option
    for option in "${@:3}"; do KIND[$2:$option]=$1; done
}
kind flag prepare --lower --keep-overlap
kind file prepare --source --target --trainpref --validpref --testpref
kind name prepare --source-lang --target-lang
kind bpe prepare --bpe
kind ratio prepare --max-ratio
kind whole prepare --bpe-size --valid --test --split-seed --max-words --max-characters
kind size train --size
kind norm train --norm
kind fraction train --dropout --label-smoothing
kind positive train --learning-rate
kind natural train --warmup
kind whole train --layers --width --ffn --heads --batch-tokens --seed --epochs --updates
kind whole evaluate --beam --epochs --updates
kind decimal evaluate --length-penalty --max-len-a
kind natural evaluate --max-len-b
kind whole report --epochs --updates

# run_option SCRIPT OPTION NUMBER_OF_ARGUMENTS_LEFT [VALUE]
run_option() {
    local kind=${KIND[$1:$2]-}
    case $kind in
    '') return 1 ;;
    flag) GIVEN[$2]=1 TOOK=1 && return ;;
    esac
    require_value "$2" "$3"
    [[ $4 =~ ^(${PATTERN[$kind]})$ ]] || usage_error "option $2 got '$4': give ${ASKED[$kind]}"
    GIVEN[$2]=$4
    [[ $2 == --epochs || $2 == --updates ]] || return 0
    [[ -z ${GIVEN[--epochs]-} || -z ${GIVEN[--updates]-} ]] ||
        usage_error "options --epochs and --updates both say how long is trained: leave one of the two out"
    LENGTH_UNIT=${2#--} LENGTH=$4
}

prepare_option() { run_option prepare "$@"; }

PREPARE_OPTIONS=", --source, --target, --trainpref, --validpref, --testpref, --source-lang, --target-lang, --valid, --test, --split-seed, --lower, --max-words, --max-characters, --max-ratio, --keep-overlap, --bpe, --bpe-size"
PREPARE_HELP='  --source FILE, --target FILE
                 the text and its translation, a sentence a line; line N of one is the
                 translation of line N of the other. Or
  --trainpref PREFIX
                 PREFIX.SOURCE-LANG and PREFIX.TARGET-LANG are those files
  --source-lang NAME, --target-lang NAME
                 what the languages are called (default: src, tgt)
  --validpref PREFIX, --testpref PREFIX
                 files of validation and test, named as those of --trainpref; of what has none,
                 pairs are drawn from the training text:
  --valid N, --test N
                 how many (default: 1000, or a twentieth of the pairs where they are fewer
                 than 20,000)
  --split-seed N of the shuffle by which they are drawn (default: 1)
  --keep-overlap keep training pairs that share a side with the files of validation or test
                 (default: they are left out)
  --lower        all text in small letters, that of the test too
  --max-words N, --max-characters N
                 pairs with a longer side are left out of training and validation
                 (default: 200, 1500)
  --max-ratio R  so are those with one side over R times as long, in characters, as the other
                 (default: 10)
  --bpe WHAT     sentencepiece, of the text as it is; subword-nmt, of words as the tokeniser of
                 Moses cuts them (extra recipes); none: words as they stand (default: sentencepiece)
  --bpe-size N   pieces of sentencepiece, merges of subword-nmt, of both languages together
                 (default: 4000)
'
RUN_OPTIONS="--epochs, --updates, "

run_option_help() {
    case $1 in
    train)
        cat <<TEXT

In the place of a mapping, stock is fairseq's own transformer. How long:

  --epochs N or --updates N (default: --epochs 10)

The model and its training; --size says the defaults of the other options:

                    small   medium  base
  --size NAME       the default
  --layers N            2        6       6   of encoder and decoder each
  --width N           128      512     512   of embeddings and layers
  --ffn N             256     1024    2048   of feed-forward layers
  --heads N             4        4       8   of each attention
  --norm WHERE        pre     post    post   layer norm before or behind a sublayer
  --dropout P         0.1      0.3     0.1
  --batch-tokens N   1250     4096   25000   of an update, however many processes share it
  --learning-rate R 0.005   0.0005  0.0007   its peak; then the inverse square root of updates
  --warmup N          400     4000    4000   updates in which it rises
  --label-smoothing P 0.1      0.1     0.1
  --seed N              1        1       1

Further options of fairseq-train stand behind the mapping, such as --fp16 or --patience 5.
TEXT
        ;;
    evaluate)
        cat <<TEXT

  --epochs N or --updates N, as for train.sh
  --beam N              (default: 5)
  --length-penalty P    fairseq's --lenpen (default: 1)
  --max-len-a A, --max-len-b B
                        a translation has A times the subwords of its source and B more at most
                        (default: 2, 20)
TEXT
        ;;
    esac
}

# --- what follows from them --------------------------------------------------

# value OPTION DEFAULT
value() { printf '%s\n' "${GIVEN[$1]-$2}"; }

settle_dataset() {
    case $SCRIPT in
    prepare) settle_text ;;
    *) read_what_was_prepared "$1" ;;
    esac
    case $SCRIPT in
    train) settle_training ;;
    evaluate) settle_search ;;
    esac
    TASK=()
    derive
}

settle_text() {
    local option file size
    SOURCE=$(value --source-lang src) TARGET=$(value --target-lang tgt)
    [[ $SOURCE != "$TARGET" ]] ||
        usage_error "option --target-lang got '$TARGET', as --source-lang did: give two names"
    settle_files
    size=$(value --bpe-size 4000)
    MAX_WORDS=$(value --max-words 200)
    case $(value --bpe sentencepiece) in
    sentencepiece) SUBWORDS=sentencepiece:$size ;;
    subword-nmt) SUBWORDS=joint:$size TOKENIZER=moses ;;
    none)
        [[ -z ${GIVEN[--bpe-size]-} ]] || usage_error "option --bpe-size got '$size' with --bpe none, which has no subwords: leave one of the two out"
        SUBWORDS=none
        ;;
    esac
    HOW=(--languages "$SOURCE" "$TARGET" --seed "$(value --split-seed 1)" --max-words "$MAX_WORDS"
        --max-characters "$(value --max-characters 1500)" --max-ratio "$(value --max-ratio 10)")
    for option in --valid --test; do
        if [[ -n ${GIVEN[$option]-} ]]; then HOW+=("$option" "${GIVEN[$option]}"); fi
    done
    for option in --lower --keep-overlap; do
        if [[ -n ${GIVEN[$option]-} ]]; then HOW+=("$option"); fi
    done
    SPLITS_FROM=("$(sha256_of "$TOOLS/own_splits.py")" "$(sha256_of "$TOOLS/parallel_text.py")" "${HOW[@]}")
    for file in "${FILES[@]}"; do SPLITS_FROM+=("$(sha256_of "$file")"); done
}

# settle_files: sets FILES, all that are read, and INPUT, the options that name them
settle_files() {
    local split option
    FILES=() INPUT=()
    if [[ -n ${GIVEN[--trainpref]-} ]]; then
        [[ -z ${GIVEN[--source]-}${GIVEN[--target]-} ]] ||
            usage_error "option --trainpref got '${GIVEN[--trainpref]}' together with --source or --target, which name the same files: leave one of the two out"
        take_files --trainpref ".$SOURCE" ".$TARGET"
    else
        for option in --source --target; do
            [[ -n ${GIVEN[$option]-} ]] ||
                usage_error "option $option is missing: name the two texts by --source FILE --target FILE, or by --trainpref PREFIX"
            take_files "$option" ''
        done
    fi
    for split in valid test; do
        [[ -n ${GIVEN[--${split}pref]-} ]] || continue
        [[ -z ${GIVEN[--$split]-} ]] ||
            usage_error "option --$split got '${GIVEN[--$split]}' together with --${split}pref, which has pairs of its own: leave one of the two out"
        take_files "--${split}pref" ".$SOURCE" ".$TARGET"
    done
}

# take_files OPTION END...
take_files() {
    local file end given=${GIVEN[$1]}
    INPUT+=("$1" "$given")
    for end in "${@:2}"; do
        file=$given$end
        [[ ! -e $file || -f $file ]] || usage_error "option $1 got '$given': '$file' is no file that can be read twice: write the text to a file, and give that"
        [[ -r $file ]] || usage_error "option $1 got '$given': there is no file '$file' that can be read"
        FILES+=("$file")
    done
}

splits() { python3 "$TOOLS/own_splits.py" "${INPUT[@]}" "${HOW[@]}" "$1"; }

# read_what_was_prepared FOLDER
read_what_was_prepared() {
    local found=("$1"/data-bin/train.*-*.*.idx) pair
    [[ -f ${found[0]} && -f $1/data-bin/units ]] || return 0
    pair=$(basename "${found[0]}")
    pair=${pair#train.}
    pair=${pair%%.*}
    SOURCE=${pair%-*} TARGET=${pair#*-}
    SUBWORDS=$(<"$1/data-bin/units")
    if [[ $SUBWORDS == joint:* ]]; then TOKENIZER=moses; fi
}

settle_training() {
    local -A by_size=([--dropout]=0.1 [--norm]=post [--warmup]=4000 [--layers]=6 [--width]=512)
    case $(value --size small) in
    small) by_size+=([--layers]=2 [--width]=128 [--ffn]=256 [--heads]=4 [--norm]=pre
        [--batch-tokens]=1250 [--learning-rate]=0.005 [--warmup]=400) ;;
    medium) by_size+=([--ffn]=1024 [--heads]=4 [--dropout]=0.3 [--batch-tokens]=4096 [--learning-rate]=0.0005) ;;
    base) by_size+=([--ffn]=2048 [--heads]=8 [--batch-tokens]=25000 [--learning-rate]=0.0007) ;;
    esac
    setting() { value "$1" "${by_size[$1]}"; }
    local width heads side
    width=$(setting --width) heads=$(setting --heads)
    ((width % heads == 0)) ||
        usage_error "option --heads is $heads and --width $width: give a width that is a multiple of the heads"
    BATCH_TOKENS=$(setting --batch-tokens) SEED=$(value --seed 1)
    MODEL=(--share-all-embeddings --dropout "$(setting --dropout)")
    for side in encoder decoder; do
        MODEL+=("--$side-layers" "$(setting --layers)" "--$side-embed-dim" "$width"
            "--$side-ffn-embed-dim" "$(setting --ffn)" "--$side-attention-heads" "$heads")
        if [[ $(setting --norm) == pre ]]; then MODEL+=("--$side-normalize-before"); fi
    done
    TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing "$(value --label-smoothing 0.1)"
        --optimizer adam --adam-betas '(0.9, 0.98)'
        --lr "$(setting --learning-rate)" --lr-scheduler inverse_sqrt --warmup-updates "$(setting --warmup)")
}

settle_search() {
    GENERATION=(--beam "$(value --beam 5)" --lenpen "$(value --length-penalty 1)"
        --max-len-a "$(value --max-len-a 2)" --max-len-b "$(value --max-len-b 20)")
}

# --- models ------------------------------------------------------------------

require_model() { [[ $2 == stock ]] || require_known_mapping "$1" "$2"; }

# The longest sentence of the data has a place in every model; fairseq's default is 1024
model_options() {
    local longest
    longest=$(python3 "$TOOLS/batches.py" "$OUTPUT/data-bin" "$SOURCE" "$TARGET" --longest) || exit
    ((longest > 1024)) || longest=1024
    case $1 in
    stock) MODEL_OPTIONS=(--arch transformer) ;;
    *) MODEL_OPTIONS=(--arch entmax_transformer --attn-mapping "$1") ;;
    esac
    MODEL_OPTIONS+=(--max-source-positions "$longest" --max-target-positions "$longest")
}
