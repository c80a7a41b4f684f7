# Your own text and its translation; see README.md. Options of prepare.sh name the files; the other
# scripts find the languages in what it wrote.
#
# Environment: BPE_SIZE is the number of subwords for both languages together; SIZE is the size of
# the model: small, medium or base.

SOURCE=src TARGET=tgt
TOKENIZER=none
BPE_SIZE=${BPE_SIZE:-4000}
require_positive_integer BPE_SIZE "$BPE_SIZE"
SUBWORDS=sentencepiece:$BPE_SIZE
TEXT_BY_OPTIONS=1
LENGTH_UNIT=epochs LENGTH=10
RISES=1 # α, in the first half of the updates
CPU_LOG_INTERVAL=10 # where an update takes 3 seconds, a line each half minute
GENERATION=(--beam 5 --max-len-a 2 --max-len-b 20)
MODELS=(stock entmax)
MODELS_HELP="stock is fairseq's own transformer;
                 softmax, sparsemax, entmax15, entmax, fusedmax, entmax:alpha=1.33, ..."

TEXT=() # options of corpus_splits.py
PREPARE_OPTIONS=", --source, --target, --trainpref, --validpref, --testpref, --source-lang, --target-lang, --valid, --test, --lower"
PREPARE_HELP='  --source FILE, --target FILE
                 the text and its translation, one sentence per line; line N of one is the
                 translation of line N of the other. Or
  --trainpref PREFIX
                 these files are PREFIX.SOURCE-LANG and PREFIX.TARGET-LANG
  --source-lang NAME, --target-lang NAME
                 names of the languages (default: src, tgt)
  --validpref PREFIX, --testpref PREFIX
                 validation and test files, named like those of --trainpref; for a split without
                 files, pairs are drawn from the training text:
  --valid N, --test N
                 how many to draw (default: 1000, or a twentieth of the pairs if there are
                 fewer than 20,000)
  --lower        lowercase all text, including the test set
'

require_text() { [[ -f $2 ]] || usage_error "option $1 got '$2': no such file; give the path of a text with one sentence per line"; }

prepare_option() {
    case $1 in
    --lower) TEXT+=(--lower) TOOK=1 && return ;;
    --source | --target) require_value "$1" "$2" && require_text "$1" "$3" ;;
    --trainpref | --validpref | --testpref) require_value "$1" "$2" ;;
    --valid | --test) require_value "$1" "$2" && require_positive_integer "$1" "$3" ;;
    --source-lang | --target-lang)
        require_value "$1" "$2"
        [[ $3 =~ ^[A-Za-z][A-Za-z0-9_]*$ ]] ||
            usage_error "option $1 got '$3': give a short name of letters, digits and _, such as de; it need not be a known language"
        if [[ $1 == --source-lang ]]; then SOURCE=$3; else TARGET=$3; fi
        return
        ;;
    *) return 1 ;;
    esac
    TEXT+=("$1" "$3")
}

splits() { python3 "$TOOLS/corpus_splits.py" "$1" --languages "$SOURCE" "$TARGET" "${TEXT[@]}"; }

settle_dataset() {
    local found=("$1"/data-bin/train.*-*.*.idx) pair made_from
    if [[ ${SCRIPT-} == prepare ]]; then
        [[ $SOURCE != "$TARGET" ]] ||
            usage_error "option --target-lang got '$TARGET', the same as --source-lang: give two names"
        made_from=$(splits -) || exit
        SPLITS_FROM=("$made_from" "$(sha256_of "$TOOLS/corpus_splits.py")")
    elif [[ -f ${found[0]} ]]; then
        pair=$(basename "${found[0]}") pair=${pair#train.} pair=${pair%%.*}
        SOURCE=${pair%-*} TARGET=${pair#*-}
    fi
    TASK=()
    derive
}

layers=6 width=512 ffn=1024 heads=4 dropout=0.1 rate=0.0005 warmup=4000 options=()
MOST_TOKENS=4096 BATCH_TOKENS=4096
case ${SIZE:-small} in
small)
    layers=2 width=128 ffn=256 rate=0.005 warmup=400 BATCH_TOKENS=1250
    options=(--encoder-normalize-before --decoder-normalize-before)
    ;;
medium) dropout=0.3 ;;
base) ffn=2048 heads=8 rate=0.0007 BATCH_TOKENS=25000 ;;
*) usage_error "SIZE is '$SIZE': give small, medium or base" ;;
esac
MODEL=(--share-all-embeddings --dropout "$dropout" "${options[@]}")
for side in encoder decoder; do
    MODEL+=("--$side-layers" "$layers" "--$side-embed-dim" "$width" "--$side-ffn-embed-dim" "$ffn"
        "--$side-attention-heads" "$heads")
done
TRAINING=(--criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)'
    --lr "$rate" --lr-scheduler inverse_sqrt --warmup-updates "$warmup")

require_model() { [[ $2 == stock ]] || require_known_mapping "$1" "$2"; }

model_options() {
    case $1 in
    stock) MODEL_OPTIONS=(--arch transformer) RISES='' ;;
    *) MODEL_OPTIONS=(--arch entmax_transformer --attn-mapping "$1") ;;
    esac
}
