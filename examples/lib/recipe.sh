# What every script of a recipe begins with. The scripts in lib/ source it; they are in
# turn what prepare.sh, train.sh, prune.sh and evaluate.sh of each recipe consist of.
#
# Sets RECIPE (the recipe's folder), ROOT (the project's) and, from RECIPE/dataset.sh:
#
#   SOURCE TARGET     the languages; TARGET is empty where there is one text, as of a language model
#   TASK              array: options that name fairseq's task; a translation where it is empty
#   ARCHIVES          array: files of ../corpora.tsv that splits needs; empty for a shipped corpus
#   splits            function: calls 'add SPLIT ARCHIVE MEMBER', or add_text for one text, or writes the
#                     splits itself, to the folder that it is given
#   SPLITS_FROM       words that splits depends on beside the archives
#   TOKENIZER         moses, or none: the text goes to the subword model as it is
#   REFERENCE         the split with the untouched reference, where the corpus has its words cut
#   SPEECH            the language of both sides, where SOURCE and TARGET are no languages
#   LOWER             1: the words are in small letters
#   KEEP              array: words that the tokeniser and the subwords leave whole, such as <t>
#   FIRST_WORDS       array: of source and target, the words that are taken of them
#   MAX_WORDS         training pairs with a longer side are left out, and empty ones
#   SUBWORDS          sentencepiece:N, one model of N pieces; joint:N or separate:N, N merges of
#                     subword-nmt, learned on both languages together or on each; words:N, the N
#                     most frequent words, and MARKERS numbers for other words of the source;
#                     none: every word of the training text, as it stands there
#   TEST_SETS         array: the splits that evaluate.sh scores
#   BATCH_TOKENS      tokens in the batch of an update, over all processes
#   MOST_TOKENS       tokens at most that one process takes at a time
#   LENGTH_UNIT       epochs or updates; LENGTH, the default number of them
#   RISES             1: alpha rises in the first half of the updates
#   CPU_LOG_INTERVAL  updates between two lines of the log on a CPU
#   BLOCK_TOKENS      of one text: tokens of the blocks into which --tokens-per-sample cuts it
#   MODEL             array: options of fairseq-train that say what the model is
#   TRAINING          array: those that say how it is trained
#   GENERATION        array: options of fairseq-generate, such as the beam
#   PRUNE_...         see prune.sh
#
# and may define anew canonical_model, require_model and model_options, which say what the word
# after the options of train.sh means, binary_files, which says what a training reads, prepare_option,
# which takes options of the recipe's own, and settle_dataset, which says what follows from them
# and from what prepare.sh wrote.
#
# SEED in the environment is the seed of trainings (default: 1); the text is split alike for all.
#
# For a trial, GENERATION_OPTIONS in the environment has further options of fairseq-generate, such as
# '--max-len-b 20': a model that is hardly trained does not end its sentences; and TRIAL_PAIRS how
# many pairs prepare.sh keeps of training, validation and test, such as 240,16,12.

source "$(dirname "${BASH_SOURCE[0]}")/signals.sh"
# A script of no recipe's folder says whose it is
RECIPE=${RECIPE_FOLDER:-$(cd "$(dirname "$0")" && pwd)}
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source "$ROOT/examples/lib/common.sh"

# Where the recipe writes when no --output is given. The quickstart's data lie in a folder
# of its name, as they come with the project.
DEFAULT_OUTPUT=$ROOT/experiments/$(basename "$RECIPE")

((BASH_VERSINFO[0] >= 4)) || die "bash $BASH_VERSION is too old: install bash 4 or later"

ARCHIVES=()
SPLITS_FROM=()
TASK=()
TOKENIZER=moses SPEECH='' LOWER=0 KEEP=() FIRST_WORDS=()
MAX_WORDS=250 MARKERS=0
TEST_SETS=(test) REFERENCE=test
MOST_TOKENS=4096
LENGTH_UNIT=updates
CPU_LOG_INTERVAL=50
GENERATION=(--beam 5)
PRUNE_MODELS=(softmax entmax) PRUNE_MODEL=() PRUNE_ATTENTIONS=()
PRUNE_COMPARE=yes PRUNE_SCORES=BLEU PRUNE_FILE=scores.txt

# canonical_model WORD: the word by which a run is named
canonical_model() { printf '%s\n' "$1"; }

# require_model WHAT WORD
require_model() { require_known_mapping "$1" "$2"; }

# model_options WORD: sets MODEL_OPTIONS, options of fairseq-train beside MODEL
model_options() { MODEL_OPTIONS=(--attn-mapping "$1"); }

# binary_files: sets BINARY, the files of data-bin that a training depends on
binary_files() { BINARY=("$OUTPUT"/data-bin/dict*.txt "$OUTPUT"/data-bin/*.bin "$OUTPUT"/data-bin/*.idx); }

# prepare_option OPTION NUMBER_OF_ARGUMENTS_LEFT [VALUE]: takes an option of the recipe's own; fails where
# it is none, and sets TOOK=1 where it has no value. PREPARE_HELP is their lines in --help, and
# PREPARE_OPTIONS their names in a message.
prepare_option() { return 1; }

# settle_dataset FOLDER: called behind the options, with the folder of --output; calls derive, if it
# changes what the others depend on
settle_dataset() { :; }

source "$RECIPE/dataset.sh"
SEED=${SEED-1}
[[ $SEED =~ ^(0|[1-9][0-9]{0,8})$ ]] || usage_error "SEED is '$SEED': give a whole number of at least 0, such as 2"

# derive: what follows from what dataset.sh says
derive() {
    # The files of a split, by the ends of their names
    SIDES=("$SOURCE" ${TARGET:+"$TARGET"})
    ((${#TASK[@]} > 0)) || TASK=(--task translation --source-lang "$SOURCE" --target-lang "$TARGET")
    # Where the text lies that the subword model reads, and what is cut by it
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
GENERATION+=(${trial[@]+"${trial[@]}"})
