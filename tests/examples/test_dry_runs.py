"""Dry runs of every recipe on miniature archives: what it reads, and its commands."""

import json
import re
import shutil

import pytest

from tests.examples import debian, lm_miniatures, miniatures, summary_miniatures
from tests.examples import entailment_miniature as entailment
from tests.examples.dry_runs import Steps, asks, called, column, raw
from tests.examples.miniatures import lines

pytestmark = pytest.mark.slow

PAPERS = list(miniatures.WRITERS)
CORREIA = "--lr 0.0003125 --lr-scheduler inverse_sqrt --warmup-updates 20000"
VOITA = "--adam-betas (0.9, 0.98) --adam-eps 1e-9 --lr 0.0014 --lr-scheduler inverse_sqrt --warmup-updates 16000"


@pytest.mark.parametrize("recipe", PAPERS)
def test_a_papers_recipe_translates_the_archives(recipe, tmp_path):
    table = raw(miniatures.write(recipe, tmp_path / "raw"))
    source, target = recipe.split("_")[-2:]
    if recipe == "wmt_en_fr":
        recipe, table["INTO"], table["TRAIN_PAIRS"] = "wmt_en_ru", target, "160"
    steps = Steps(recipe, tmp_path, twice=recipe == PAPERS[0], **table)
    preprocessed = steps.prepared()
    asks(preprocessed, f"--source-lang {source} --target-lang {target}")
    of_correia = recipe not in ("wmt_en_ru", "opensubtitles_en_ru")
    assert ("--joined-dictionary" in preprocessed) == of_correia
    check_splits(recipe, steps.out, source, target)
    batch = 8192 if of_correia else 16000
    frequency = -(-batch // 4000)
    asks(
        steps.trained("entmax:alpha=1.33", "--most-tokens", 4000),
        CORREIA if of_correia else VOITA,
        "--arch entmax_transformer_wmt_en_de",
        "--attn-mapping entmax:alpha=1.33",
        f"--max-tokens {batch // frequency}",
        f"--update-freq {frequency} --cpu",
        "--required-batch-size-multiple 1 --update-epoch-batch-itr True --seed 1",
    )
    if recipe not in ("iwslt17_de_en", "kftt_ja_en", "wmt_en_ru"):
        return  # the other recipes of a paper are scored in the same way
    evaluated = steps.evaluated("entmax:alpha=1.33")
    (generated,) = called(evaluated, "fairseq-generate")
    beam = "--beam 5" if of_correia else "--beam 4 --lenpen 0.6"
    asks(generated, f"{beam} --max-len-b 20 --remove-bpe subword_nmt")
    plain, cut = called(evaluated, "sacrebleu")
    asks(plain, f"--language-pair {source}-{target} --metrics bleu chrf")
    assert "--tokenize none --force" in cut
    run = steps.out / "runs" / "entmax_alpha=1.33-200000updates"
    assert len(lines(run / "test.hyp")) == miniatures.TEST
    assert " ," in (run / "test.hyp.tok").read_text()
    assert " ," not in (run / "test.hyp").read_text()
    (run / "test.hyp.tok").unlink()
    assert called(steps.evaluated("entmax:alpha=1.33"), "fairseq-generate")
    untouched = "untouched" if recipe == "kftt_ja_en" else "test"
    assert lines(run / "test.ref") == lines(steps.out / "text" / f"{untouched}.{target}")


def check_splits(recipe, out, source, target):
    texts = miniatures.Texts(source, target)
    train, valid, test = (
        list(zip(*(lines(out / "text" / f"{split}.{x}") for x in texts.pair), strict=True))
        for split in ("train", "valid", "test")
    )
    assert (len(valid), len(test)) == (miniatures.VALID, miniatures.TEST)
    if recipe == "opensubtitles_en_ru":
        pairs = texts.train + texts.valid + texts.test
        assert all(pairs.index(pair) % 5 for pair in train + valid + test)  # these overlap enough
        films = [{pairs.index(pair) // miniatures.FILM for pair in x} for x in (train, valid, test)]
        assert sum(map(len, films)) == len(set.union(*films))
        return
    suffix = {"iwslt17_de_en": " R&D <x>"}.get(recipe, "")
    assert valid == [tuple(side + suffix for side in pair) for pair in texts.valid]
    suffix = " A & B" if recipe.startswith("wmt") else ""
    assert test == [tuple(side + suffix for side in pair) for pair in texts.test]
    expected = texts.train
    if recipe == "iwslt17_de_en":
        expected = [pair for number, pair in enumerate(texts.train) if number != 7]
        expected[8] = tuple(side + " and on" for side in expected[8])
        expected[10] = tuple(side + " R&D" for side in expected[10])
    if target == "fr":  # two of three pairs, from all over the text
        expected = [pair for number, pair in enumerate(texts.train) if number % 3]
    assert train == expected
    if recipe == "kftt_ja_en":  # the authors have tokenised the text
        assert not (out / "tok").exists()
        return
    words = [len(line.split()) for x in texts.pair for line in lines(out / "tok" / f"train.{x}")]
    assert 0 < min(words) <= max(words) <= 200


def test_pruning_searches_removes_recovers_and_compares(verses):
    """With two budgets."""
    steps = verses
    steps.twice = True
    models, trained = steps.pruned("--mapping", "entmax", "--budgets", "all=6,encoder=4")
    pruned = ["all6-pruned", "all6-scratch", "encoder4-pruned", "encoder4-scratch"]
    assert models == ["baseline", "continued", *pruned]
    baseline, _, search, recovery, *_ = trained
    heads = "--encoder-self-attn-heads 2,1 --decoder-self-attn-heads 1,2 --cross-attn-heads 2,2"
    asks(baseline, "--encoder-layers 3 --decoder-layers 3", "--lr 0.003")
    asks(
        search,
        "--criterion label_smoothed_cross_entropy_with_head_l0",
        "--head-gates encoder-self,decoder-self,cross --target-heads 6 --patience -1",
        # An epoch has 1817 updates
        "--l0-warmup-updates 1144 --decide-heads-at 1726",
    )
    assert "runs/prune-entmax-baseline/checkpoints/checkpoint_best.pt " in search
    asks(recovery, heads, "--finetune-from-model", "--end-learning-rate 0")
    assert "prune-entmax-all6-search/pruned.pt " in recovery
    for scratch in (call for call in trained if "-scratch/" in call):
        # As many updates as the others had in total
        asks(scratch, heads, f"--max-update {10 + 1817 + 2 * 1817}")
        assert "--finetune-from-model" not in scratch
    assert any("--freeze-decoder " in call for call in trained)
    (continued,) = [call for call in trained if "-continued/" in call]
    asks(continued, f"--max-update {3 * 1817}")

    # Pruning by loss: no search, all updates go into the recovery, which has a teacher
    options = ("--mapping", "entmax", "--budgets", "all=6", "--protocol")
    calls, _ = steps.once("prune.sh", "--cpu", *options, "loss", "--teacher")
    table = column(steps.out / "pruning-loss-teacher.tsv")
    assert table[2:] == ["all6-loss-teacher-pruned", "all6-loss-scratch"]
    best = "runs/prune-entmax-baseline/checkpoints/checkpoint_best.pt"
    removals = steps.out / "runs/prune-entmax-baseline/removals"
    asks(*called(calls, "fairseq-entmax", "ablate"), "--gen-subset valid", "--scores loss")
    (taken,) = called(calls, "fairseq-entmax", f"prune {steps.out}/{best}")
    asks(taken, f"--keep 6 --by loss --evidence {removals}/ablation.json")
    recovery, scratch = called(calls, "fairseq-train")
    teacher = f"--teacher {steps.out}/{best.replace('baseline', 'continued')}"
    asks(recovery, heads, teacher, f"--max-update {3 * 1817}", "--lr 0.003")
    asks(scratch, f"--max-update {10 + 3 * 1817}")
    steps.twice = False  # a step is noted as done for all protocols together
    (steps.out / best.replace("baseline", "continued")).write_text("another teacher")
    _, said = steps.once("prune.sh", "--cpu", *options, "loss", "--teacher")
    assert "settings or data of prune-entmax-all6-loss-teacher-pruned have changed" in said
    calls, _ = steps.once("prune.sh", "--cpu", *options, "subset", "--budgets", "-/6/6")
    search, recovery, _ = called(calls, "fairseq-train")
    asks(search, "--gate subset", "--target-heads decoder-self=6,cross=6", "--max-update 1817")
    asks(recovery, f"--max-update {2 * 1817}")
    options = (*options, "regularised", "--search-updates", 4000, "--budgets", "all=6,encoder=4")
    calls, _ = steps.once("prune.sh", "--cpu", *options)
    _, search, _, scratch, of_encoder, *_ = called(calls, "fairseq-train")
    assert "--freeze-decoder" not in of_encoder  # which starts with a decoder that knows nothing
    asks(of_encoder, "--head-gates encoder-self --target-heads encoder-self=4")
    asks(scratch, f"--max-update {4000 + 2 * 1817}")  # the search does not begin with the baseline
    asks(search, "--head-gates encoder-self,decoder-self,cross", "--lr 0.003", "--max-update 4000")
    assert "--finetune-from-model" not in search

    # What follows from a text that was removed is made again; other data are not for the old models
    shutil.rmtree(steps.out / "text")
    assert called(steps.once("prepare.sh", "--workers", 1)[0], "fairseq-preprocess")
    run = ("evaluate.sh", "--cpu", "--name", "prune-entmax-baseline", "entmax")
    assert "already done" in steps.once(*run)[1]
    (steps.out / "data-bin" / "valid.es-en.es.bin").write_text("another text")
    said = steps.dry("bible_es_en", *run[:1], "--output", steps.out, *run[1:], check=False)
    assert "are not those that prune-entmax-baseline was trained on" in said


@pytest.mark.parametrize(
    ("recipe", "vocabulary", "model", "wanted"),
    [
        ("cnn_dm", "joint:300", "sparse-tl", "--cross-attn-mapping sparsemax*3,softmax"),
        ("cnn_dm", "words:300", "sparse-ch:entmax", "--source-position-markers 200"),
        ("gigaword", "joint:300", "cross:fusedmax", "--cross-attn-mapping fusedmax"),
    ],
)
def test_a_summary_recipe_leads_from_archives_to_rouge(recipe, vocabulary, model, wanted, tmp_path):
    table = raw(miniatures.write(recipe, tmp_path / "raw", summary_miniatures.WRITERS))
    twice = vocabulary == "words:300"
    steps = Steps(recipe, tmp_path, twice, **table, VOCABULARY=vocabulary)
    preprocessed = steps.prepared()
    assert ("--srcdict" in preprocessed) == vocabulary.startswith("words")
    schedule = "--lr 0.00098821 --lr-scheduler inverse_sqrt --warmup-updates 8000"
    asks(steps.trained(model), wanted, schedule)
    evaluated = steps.evaluated(model)
    generated = called(evaluated, "fairseq-generate")
    scored = called(evaluated, "fairseq-entmax", "rouge")
    restored = called(evaluated, "fairseq-entmax", "oov restore")
    assert len(restored) == vocabulary.startswith("words")
    assert all(" --length-penalty wu --lenpen 0.9 " in call for call in generated)
    if recipe == "gigaword":
        assert [re.search(r"--gen-subset (\S+)", x)[1] for x in generated] == ["test", "test1"]
        assert "--bytes 75 " in scored[1]
        assert scored[1].count("--reference ") == 4
    else:
        assert "--sentences </t> " in scored[0]
        assert lines(steps.out / "data-bin" / "units") == [vocabulary]
    if vocabulary == "joint:300" and recipe == "cnn_dm":
        words = steps.out / "tok"
        articles, summaries = (lines(words / f"test.{x}") for x in ("article", "summary"))
        whole = [*summaries, *lines(steps.out / "bpe" / "test.summary")]
        assert all(re.fullmatch("<t> .* </t> <t> .* </t>", line) for line in whole)
        assert all(line.startswith("( CNN ) ") for line in articles)
        steps.pruned_with("copy_cross_entropy", "2/-/3", "--mapping", "baseline")


def test_wikitext_has_the_settings_of_fairseqs_example(tmp_path):
    writers = {"wikitext103": lm_miniatures.wikitext}
    table = raw(miniatures.write("wikitext103", tmp_path / "raw", writers))
    small = {"BLOCK_TOKENS": "64", "CONTEXT_WINDOW": "48"}
    steps = Steps("wikitext103", tmp_path, twice=True, **table, **small)
    assert "--only-source " in steps.prepared()
    shutil.unpack_archive(tmp_path / "raw" / "wikitext-103-v1.zip", tmp_path)
    for split in ("train", "valid", "test"):
        original = (tmp_path / "wikitext-103" / f"wiki.{split}.tokens").read_bytes()
        assert (steps.out / "text" / f"{split}.en").read_bytes() == original
    trained = steps.trained("stock")
    example = (
        "--lr 1.0 --t-mult 2 --lr-period-updates 270000 --lr-scheduler cosine --lr-shrink 0.75 "
        "--warmup-updates 16000 --warmup-init-lr 1e-07 --stop-min-lr 1e-09 --optimizer nag "
        "--min-lr 0.0001 --clip-norm 0.1 --criterion adaptive_loss --seed 1 --update-freq 24"
    )
    asks(trained, *re.findall(r"--\S+ \S+", example))
    asks(trained, "--arch transformer_lm_wiki103 --tokens-per-sample 64 --sample-break-mode none")
    evaluated = steps.evaluated("stock")
    window = "--sample-break-mode complete --context-window 48"
    asks(called(evaluated, "fairseq-eval-lm")[0], window)
    run = steps.out / "runs" / "stock-286000updates"
    found = json.loads((run / "perplexity.json").read_text())["window"]
    assert found["word_perplexity"] == pytest.approx(2.718281828, rel=1e-6)  # 1 nat per word
    assert not (run / "alpha.txt").exists()
    steps.twice = False
    steps.pruned_with("adaptive_loss")


def test_snli_is_classified_and_its_models_are_compared(tmp_path):
    table = raw(entailment.write(tmp_path / "raw"))
    steps = Steps("snli", tmp_path, **table)
    assert f"--destdir {steps.out}/data-bin.tmp/input0 " in steps.prepared()
    best = "--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric"
    task = "--task sentence_prediction --init-token 0 --separator-token 2"
    for model in ("fusedmax", "entmax15"):
        said = f"--num-classes 3 --attn-mapping {model}"
        asks(steps.trained(model), said, best, task, "--arch entmax_roberta")
        steps.evaluated(model)
    calls, reported = steps.once("report.sh", "--cpu")
    assert "not scored by evaluate.sh at 10 epochs: softmax,sparsemax,oscarmax" in reported
    command = ("train.sh", "--cpu", "--processes", 2, "--name", "two", "softmax")
    asks(*called(steps.once(*command)[0], "torchrun"), "--find-unused-parameters")
    (analysed,) = called(calls, "fairseq-entmax", "analyze")
    assert f"{task} --num-classes 3 --gen-subset test " in analysed
    assert column(steps.out / "accuracy.tsv") == ["fusedmax"]
    steps.pruned_with("sentence_prediction")


def test_a_roberta_is_pretrained_tuned_and_pruned_on_testaments(tmp_path):
    steps = Steps("bible_testaments", tmp_path, EVERY="20", UPDATES="8,4,4")
    steps.prepared()
    text, words = (lines(steps.out / name / "test.input0") for name in ("text", "tok"))
    assert ["".join(x.split()) for x in words] == ["".join(x.lower().split()) for x in text]
    steps.twice = True
    calls, said = steps.once("pretrained.sh")
    first, *others = called(calls, "fairseq-train")
    asks(first, "--arch roberta", "--task masked_lm", "--max-update 8")
    assert len(others) == 3 + 3 + 2
    folder = steps.out / "pretrained"
    sparse = [call for call in others if "--attn-mapping sparsemax" in call]
    start = f"--finetune-from-model {folder}"
    asks(sparse[0], f"{start}/dense/checkpoint_last.pt", "--alpha-warmup-updates 3")
    asks(sparse[1], f"{start}/sparsemax/checkpoint_last.pt", "--num-classes 2")
    asks(sparse[2], "--criterion sentence_prediction_with_head_l0", "--target-heads 4")
    tuned = ["softmax-tuned", "sparsemax-tuned", "entmax-tuned"]
    assert column(folder / "accuracy.tsv") == [*tuned, "softmax-pruned", "sparsemax-pruned"]
    assert "report, to open in a browser" in said
    trained = steps.trained("sparsemax")
    asks(trained, "--num-classes 2 --attn-mapping sparsemax", "--arch entmax_roberta")
    again = ("bible_testaments", "prepare.sh", "--output", steps.out, "--labels", "books")
    assert "has models trained on them" in steps.dry(*again, check=False)


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists")
    debian.write(folder, debian.german(debian.entries(60)), ".xz")
    return {"RAW_DIR": str(folder), "VALID_SOURCES": "150", "TEST_SOURCES": "150"}


def test_packages_are_translated_and_models_are_compared(packages, tmp_path):
    steps = Steps("debian_en_de", tmp_path, **packages, BPE_SIZE="180")
    steps.prepared()
    assert not (steps.out / "raw").exists()  # the lists stay in their folder
    for model in ("softmax", "entmax"):
        trained = steps.trained(model)
        asks(trained, "--encoder-embed-dim 128 --decoder-embed-dim 128", "--max-epoch 8")
        updates = int(trained.split("--total-num-update ")[1].split()[0])
        assert updates > updates % 8 == 0  # of 8 epochs
        asks(trained, f"--alpha-warmup-updates {updates // 2}")
        steps.evaluated(model)
    steps.once("report.sh", "--cpu", "--mappings", "softmax,entmax")
    assert column(steps.out / "scores.tsv") == ["softmax", "entmax"]
    assert column(steps.out / "scores.tsv", "BLEU") == ["24.50", "24.50"]


def test_lists_are_downloaded_once_whatever_the_mirror_does(tmp_path):
    debian.write_mirror(tmp_path / "mirror", debian.german(debian.entries(60)))
    given = {"VALID_SOURCES": "150", "TEST_SOURCES": "150", "BPE_SIZE": "180"}
    given["DEBIAN_MIRROR"] = f"file://{tmp_path}/mirror"
    steps = Steps("debian_en_de", tmp_path, **given)
    moved = tmp_path / "mirror" / "dists" / "stable" / "main" / "i18n"
    moved.rename(tmp_path / "i18n")
    command = ("debian_en_de", "prepare.sh", "--output", steps.out)
    assert "name another mirror in DEBIAN_MIRROR" in steps.dry(*command, check=False, **given)
    (tmp_path / "i18n").rename(moved)
    steps.prepared()
    before = lines(steps.out / "text" / "test.de")
    shutil.rmtree(tmp_path / "mirror")
    shutil.rmtree(steps.out / "text")
    assert "lists:" not in steps.dry(*command, **steps.environment)
    assert lines(steps.out / "text" / "test.de") == before


def test_titles_are_written_by_models_that_copy(packages, tmp_path):
    steps = Steps("debian_headlines", tmp_path, **packages, VOCABULARY="sentencepiece:160")
    steps.prepared()
    copies = "--arch entmax_copy_transformer --criterion copy_cross_entropy"
    wanted = {
        "no-copy": "--arch entmax_transformer --criterion label_smoothed_cross_entropy",
        "copy": f"{copies} --attn-mapping softmax",
        "entmax": f"{copies} --attn-mapping entmax --copy-loss-weight 0.5",
        "fusedmax": f"{copies} --attn-mapping softmax --cross-attn-mapping fusedmax",
        "sparse-copy-head": "--copy-mapping entmax --copy-loss-weight 0.5",
    }
    for model, said in wanted.items():
        asks(steps.trained(model), said)
    command = ("debian_headlines", "train.sh", "--output", steps.out, "--cpu", "copy")
    said = steps.dry(*command, check=False, **{**steps.environment, "VOCABULARY": "words:60"})
    assert "were prepared with VOCABULARY=sentencepiece:160: set the same VOCABULARY here" in said
    of_run = (*command[:-1], "--name", "copy-4epochs", "coppy")
    assert "the mapping got 'coppy'" in steps.dry(*of_run, check=False, **steps.environment)
    assert (steps.out / "runs" / "copy-4epochs").exists()  # a wrong word does not set a run aside
    for model in ("copy", "no-copy"):
        steps.evaluated(model)
    calls, _ = steps.once("report.sh", "--cpu")
    (analysed,) = called(calls, "fairseq-entmax", "analyze")
    assert "--of generated --task entmax_summarization --beam 5 " in analysed
    assert column(steps.out / "rouge.tsv") == ["copy", "no-copy"]
    steps.pruned_with("copy_cross_entropy")
