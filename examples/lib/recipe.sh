# Every script of a recipe begins with this. The scripts in lib/ source it, and prepare.sh,
# train.sh, prune.sh and evaluate.sh of each recipe source those.
#
# Sets RECIPE (the recipe's folder), ROOT (the project's) and, from RECIPE/dataset.sh:
#
#   SOURCE TARGET     the languages; TARGET is empty for a single text, as in language modelling
#   TASK              array: options that name fairseq's task; translation if it is empty
#   ARCHIVES          array: files of ../corpora.tsv that splits needs; empty for a shipped corpus
#   splits            function FOLDER: calls 'add SPLIT ARCHIVE MEMBER', or add_text for a single text,
#                     or writes the splits to FOLDER itself
#   SPLITS_FROM       array: what the splits depend on besides the archives
#   TOKENIZER         moses, or none: the subword model reads the untokenised text
#   REFERENCE         the split with the untokenised reference, if the corpus is tokenised
#   SPEECH            the language of both sides, if SOURCE and TARGET are not languages
#   LOWER             1: words are lowercased
#   KEEP              array: words that the tokeniser and the subwords leave whole, such as <t>
#   FIRST_WORDS       array: how many words of source and target are kept, from the first on
#   MAX_WORDS         training pairs with a longer or an empty side are left out
#   SUBWORDS          sentencepiece:N, one model of N pieces; joint:N or separate:N, N merges of
#                     subword-nmt, learned on both languages together or on each; words:N, the N
#                     most frequent words, and MARKERS numbers for other words of the source;
#                     none: every word of the training text, as it stands there
#   TEST_SETS         array: the splits that evaluate.sh scores
#   BATCH_TOKENS      tokens in the batch of an update, over all processes
#   MOST_TOKENS       the most tokens that one process takes at a time
#   LENGTH_UNIT       epochs or updates; LENGTH, the default number of them
#   RISES             1: alpha rises in the first half of the updates
#   DECAYS            1: the learning rate falls to 0 in the last update, unless --lr-scheduler is given
#   CPU_LOG_INTERVAL  updates between two lines of the log on a CPU
#   BLOCK_TOKENS      for a single text: tokens of the blocks into which --tokens-per-sample cuts it
#   MODEL             array: options of fairseq-train for the model
#   TRAINING          array: options of fairseq-train for the training
#   DISTRIBUTED       array: options of fairseq-train for several processes
#   GENERATION        array: options of fairseq-generate, such as the beam
#   PRUNE_...         see prune.sh
#
# It may redefine canonical_model, require_model and model_options (what the word after the options of
# train.sh means), binary_files (what a training reads), prepare_option (further options of prepare.sh)
# and settle_dataset (what follows from these options and from what prepare.sh wrote).
#
# The environment variable SEED is the seed of trainings (default: 1); it does not change the splits.
#
# For a trial, set GENERATION_OPTIONS to further options of fairseq-generate, such as '--max-len-b 20',
# as a model that is hardly trained does not end its sentences; and TRIAL_PAIRS to the number of pairs
# that prepare.sh keeps for training, validation and test, such as 240,16,12.

source "$(dirname "${BASH_SOURCE[0]}")/signals.sh"
# A script outside a recipe's folder sets RECIPE_FOLDER
RECIPE=${RECIPE_FOLDER:-$(cd "$(dirname "$0")" && pwd)}
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$ROOT/examples/lib/common.sh"

# The default of --output. bible_es_en has another one, which it shares with the quickstart.
DEFAULT_OUTPUT=$ROOT/experiments/$(basename "$RECIPE")

((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || die "bash $BASH_VERSION is too old: install bash 4.4 or later"

ARCHIVES=()
SPLITS_FROM=()
TASK=() DISTRIBUTED=()
TOKENIZER=moses SPEECH='' LOWER=0 KEEP=() FIRST_WORDS=()
MAX_WORDS=250 MARKERS=0
TEST_SETS=(test) REFERENCE=test
MOST_TOKENS=4096
LENGTH_UNIT=updates
CPU_LOG_INTERVAL=50
GENERATION=(--beam 5)
PRUNE_MODELS=(softmax entmax) PRUNE_MODEL=() PRUNE_ATTENTIONS=()
PRUNE_COMPARE=yes PRUNE_SCORES=BLEU PRUNE_FILE=scores.txt

# canonical_model WORD: the word that names a run
canonical_model() { printf '%s\n' "$1"; }

# require_model WHAT WORD
require_model() { require_known_mapping "$1" "$2"; }

# model_options WORD: sets MODEL_OPTIONS, options of fairseq-train besides MODEL
model_options() { MODEL_OPTIONS=(--attn-mapping "$1"); }

# binary_files: sets BINARY, the files of data-bin that a training depends on
binary_files() { BINARY=("$OUTPUT"/data-bin/dict*.txt "$OUTPUT"/data-bin/*.bin "$OUTPUT"/data-bin/*.idx); }

# prepare_option OPTION NUMBER_OF_ARGUMENTS_LEFT [VALUE]: reads an option that only this recipe has; fails if
# it is none, and sets TOOK=1 if it has no value. PREPARE_HELP has the lines of these options in --help, and
# PREPARE_OPTIONS their names in an error message.
prepare_option() { return 1; }

# settle_dataset FOLDER: called with the folder of --output once the options are read; calls derive if it
# changes what that reads
settle_dataset() { :; }

source "$RECIPE/dataset.sh"
SEED=${SEED-1}
[[ $SEED =~ ^(0|[1-9][0-9]{0,8})$ ]] || usage_error "SEED is '$SEED': give a whole number of at least 0, such as 2"

# derive: sets what follows from dataset.sh
derive() {
    # The endings of a split's file names
    SIDES=("$SOURCE" ${TARGET:+"$TARGET"})
    ((${#TASK[@]} > 0)) || TASK=(--task translation --source-lang "$SOURCE" --target-lang "$TARGET")
    # The folders with the input and with the output of the subword model
    if [[ $TOKENIZER == none ]]; then WORDS=text; else WORDS=tok; fi
    case $SUBWORDS in
    sentencepiece:*) PIECES=spm REMOVE_BPE=(--remove-bpe sentencepiece) ;;
    words:*) PIECES=words REMOVE_BPE=() ;;
    none) PIECES=$WORDS REMOVE_BPE=() ;;
    *) PIECES=bpe REMOVE_BPE=(--remove-bpe subword_nmt) ;;
    esac
}
derive
read -r -a trial <<<"${GENERATION_OPTIONS-}"
GENERATION+=("${trial[@]}")
