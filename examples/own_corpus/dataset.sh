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
    [whole]='[1-9][0-9]{0,8}' [natural]='0|[1-9][0-9]{0,8}'
    [decimal]='[0-9]+(\.[0-9]+)?|\.[0-9]+' [ratio]='[1-9][0-9]*(\.[0-9]+)?'
    [name]='[A-Za-z][A-Za-z0-9_]{0,31}' [file]='.+'
    [bpe]='sentencepiece|subword-nmt|none' [size]='small|medium|base'
)
declare -A ASKED=(
    [whole]='a whole number of at least 1' [natural]='a whole number of at least 0'
    [decimal]='a number of at least 0' [ratio]='a number of at least 1'
    [name]='a short name of letters, digits and _, such as de; it need not be a known language'
    [file]='a file' [bpe]='sentencepiece, subword-nmt or none' [size]='small, medium or base'
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
kind whole train --batch-tokens --seed --epochs --updates
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

  --size NAME       small: 2 layers of width 128, for a CPU; medium: fairseq's model for IWSLT;
                    base: that of Vaswani et al. (default: small)
  --batch-tokens N  of an update, however many processes share it (default: 1250, 4096, 25000)
  --seed N          (default: 1)

What fairseq-train has options for stands behind the mapping, such as --dropout 0.3 or --patience 5.
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
    local layers=6 width=512 ffn=1024 heads=4 dropout=0.1 batch=4096 rate=0.0005 warmup=4000 side
    MODEL=(--share-all-embeddings)
    case $(value --size small) in
    small)
        layers=2 width=128 ffn=256 batch=1250 rate=0.005 warmup=400
        MODEL+=(--encoder-normalize-before --decoder-normalize-before)
        ;;
    medium) dropout=0.3 ;;
    base) ffn=2048 heads=8 batch=25000 rate=0.0007 ;;
    esac
    BATCH_TOKENS=$(value --batch-tokens "$batch") SEED=$(value --seed 1)
    for side in encoder decoder; do
        MODEL+=("--$side-layers" "$layers" "--$side-embed-dim" "$width" "--$side-ffn-embed-dim" "$ffn"
            "--$side-attention-heads" "$heads")
    done
    MODEL+=(--dropout "$dropout")
    TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
        --optimizer adam --adam-betas '(0.9, 0.98)'
        --lr "$rate" --lr-scheduler inverse_sqrt --warmup-updates "$warmup")
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
