"""The command ``fairseq-entmax ablate``: its results, restarts and errors."""

import json
import re
import shutil
import sys
from functools import partial

import pytest
import sacrebleu
import scipy.stats
import torch
from rouge_score import rouge_scorer

from fairseq_entmax import progress, pruning
from fairseq_entmax.analysis.ablation.command import main
from fairseq_entmax.analysis.ablation.removal import Scorer
from fairseq_entmax.analysis.ablation.results import as_table, holm
from tests.analysis.data_types.small import words
from tests.pruning.test_surgery import state_of, trained
from tests.support import binarise, random_sentences, search

pytestmark = pytest.mark.slow

ENTMAX = {"attn_mapping": "entmax"}
GATED = {**ENTMAX, "head_gates": "encoder-self,cross"}
SOURCES = random_sentences([5, 9, 3, 7, 11, 4, 6, 8, 12, 10, 5, 7])
OPTIONS = ["--max-len-b=12", "--min-len=6", "--remove-bpe=sentencepiece"]
OPTIONS += ["--trials=50", "--num-workers=0"]
FINISHED = (
    "--scores=loss,bleu,rouge",
    *("--heads", "encoder-self:0.1;cross:0.0,1.3", "decoder-self:0.2", "cross:0.0"),
    *("--sets", "encoder-self:0.1;cross:0.0", "decoder-self:1.0,1.1,1.2,1.3"),
)
RESULT = "ablation.json"


def write_data(folder, sources, targets, split="valid", markers=0):
    """Write binarised data of sentence pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, sentences in (("a", sources), ("b", targets)):
        (folder / f"dict.{language}.txt").write_text(words(markers), encoding="utf-8")
        binarise(folder / f"{split}.a-b.{language}", sentences)


def save_trained(path, **options):
    """Save a tiny model with seven updates."""
    history = {"num_updates": 7, "lr_scheduler_state": {}, "optimizer_name": "FairseqAdam"}
    state = {**state_of(trained(**options), **options), "optimizer_history": [history]}
    torch.save(state, path)


@pytest.fixture(scope="module")
def targets():
    """The translations of the sources by ``plain.pt``, with one word of each changed."""
    model, targets = trained(**ENTMAX), []
    for source in SOURCES:
        net_input = {"src_tokens": source[None], "src_lengths": torch.tensor([len(source)])}
        (((best, _), *_),) = search(model, {"net_input": net_input}, min_len=6)
        tokens = torch.tensor(best)
        tokens[:-1] = tokens[:-1].clamp(4)  # words, not special symbols
        tokens[-2] = 4 + (tokens[-2] + 3) % 20
        targets.append(tokens)
    return targets


@pytest.fixture(autouse=True)
def _progress_at_once(monkeypatch):
    """Show progress even for work shorter than three seconds."""
    monkeypatch.setattr(progress, "SHORT", 0.0)
    monkeypatch.setattr(progress, "RAREST", 0.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory, targets):
    """Data and checkpoints of tiny models, one of them with some gates closed."""
    folder = tmp_path_factory.mktemp("source")
    write_data(folder / "bin", SOURCES, targets)
    for split, lengths in (("single", [6]), ("long", [6, 70])):
        sentences = random_sentences(lengths)
        write_data(folder / "bin", sentences, sentences, split)
    for name, options in (("plain", ENTMAX), ("gated", GATED)):
        save_trained(folder / f"{name}.pt", **options)
    (folder / "notes.txt").write_text("no checkpoint\n")
    return folder


def ablate(source, output, *options, checkpoint="plain.pt"):
    options = [*OPTIONS, *options]
    path = ["--path", str(source / checkpoint)] if checkpoint else []
    main([str(source / "bin"), *path, "--cpu", "--output", str(output), *options])


def document(output):
    return json.loads((output / "ablation.json").read_text(encoding="utf-8"))


def stored(output):
    lines = (output / "removals.jsonl").read_text(encoding="utf-8").splitlines()
    return {tuple(line["heads"]): line for line in map(json.loads, lines[1:])}


def joined(sentences):
    """Sentences as text, with subwords joined by hand."""
    return [
        "".join(f"{' ' * (token % 2)}w{token - 4}" for token in sentence[:-1].tolist()).strip()
        for sentence in sentences
    ]


@pytest.fixture(scope="module")
def finished(source, tmp_path_factory):
    """An ablation with all scores, of some heads and two sets."""
    output = tmp_path_factory.mktemp("finished") / "out"
    ablate(source, output, *FINISHED)
    return output


def test_single_heads_and_sets_are_removed_and_listed_from_the_worst(finished, targets):
    found = document(finished)
    assert (found["format"], found["version"]) == ("fairseq-entmax-ablation", 1)
    assert sorted(removal["heads"] for removal in found["removals"]) == [
        ["cross:0.0"],
        ["cross:0.0", "encoder-self:0.1"],
        ["cross:1.3"],
        ["decoder-self:0.2"],
        ["decoder-self:1.0", "decoder-self:1.1", "decoder-self:1.2", "decoder-self:1.3"],
        ["encoder-self:0.1"],
    ]
    changes = [removal["loss"]["change"] for removal in found["removals"]]
    assert changes == sorted(changes, reverse=True)
    assert found["data"]["sentences"] == len(targets)
    assert found["data"]["target_tokens"] == sum(map(len, targets))


@pytest.mark.parametrize("score", ["loss", "rouge1", "rouge2", "rougeL"])
def test_losses_and_rouge_match_the_stored_sentences(finished, targets, score):
    found, sentences = document(finished), stored(finished)
    lengths, rouge = list(map(len, targets)), rouge_scorer.RougeScorer([score], use_stemmer=True)

    def scores_of(heads):
        """The score of each sentence, and of all sentences."""
        own = sentences[heads]
        if score == "loss":
            means = [loss / length for loss, length in zip(own["nll"], lengths, strict=True)]
            return means, sum(own["nll"]) / sum(lengths)
        pairs = zip(joined(targets), own["translations"], strict=True)
        f1 = [100 * rouge.score(*pair)[score].fmeasure for pair in pairs]
        return f1, sum(f1) / len(f1)

    before, unchanged = scores_of(())
    assert found["unchanged"][score] == pytest.approx(unchanged, rel=1e-12)
    p_values = []
    for removal in found["removals"]:
        after, value = scores_of(tuple(removal["heads"]))
        entry = removal[score]
        assert entry["value"] == pytest.approx(value, rel=1e-12)
        assert entry["change"] == pytest.approx(value - unchanged, abs=1e-12)
        p_values.append(scipy.stats.ttest_rel(before, after).pvalue if after != before else 1.0)
        assert entry["p"] == pytest.approx(p_values[-1], rel=1e-9)
    assert max(p_values) > min(p_values)
    corrected = [removal[score]["p_holm"] for removal in found["removals"]]
    assert corrected == pytest.approx(holm(p_values), rel=1e-9)


def test_bleu_matches_sacrebleu_on_the_stored_translations(finished, targets):
    found, sentences = document(finished), stored(finished)
    bleu = {(): found["unchanged"]["bleu"]}
    bleu |= {tuple(removal["heads"]): removal["bleu"]["value"] for removal in found["removals"]}
    assert bleu.keys() == sentences.keys()
    assert len(set(bleu.values())) > 4
    assert bleu[()] > 10
    for heads, value in bleu.items():
        texts = sentences[heads]["translations"]
        assert value == sacrebleu.corpus_bleu(texts, [joined(targets)]).score
        assert not any("▁" in text for text in texts)
    enough = 20 * len(found["removals"])
    for samples in (enough - 1, enough):
        found["significance"]["trials"] = samples
        assert (f"--trials {enough} can bring" in as_table(found)) == (samples < enough)
    assert "ar:50" in found["significance"]["bleu_signature"]


def test_open_heads_are_removed_by_default_and_closed_heads_do_not_matter(source, tmp_path, capsys):
    gated = partial(ablate, source, tmp_path / "out", "--scores=loss", checkpoint="gated.pt")
    gated()
    printed = capsys.readouterr()
    assert "18/18 without " in printed.err
    gated("--heads=encoder-self:1.0")
    found = document(tmp_path / "out")
    counts = pruning.checkpoint_layers(str(source / "gated.pt")).counts
    assert counts["encoder-self"] == [3, 0]
    assert len(found["removals"]) == sum(map(sum, counts.values())) + 1 == 18
    (closed,) = [one for one in found["removals"] if one["heads"] == ["encoder-self:1.0"]]
    assert (closed["loss"]["change"], closed["loss"]["p"]) == (0, 1)
    loss = found["unchanged"]["loss"]
    table = printed.out.splitlines()
    titles = "removed loss (nats a token) change p p (Holm)"
    assert table[0].split() == titles.split()
    assert table[1].split() == ["nothing", f"{loss:.4f}"]


def test_an_ablation_continues_with_more_heads_or_resamples(source, targets, tmp_path, capsys):
    out, straight = tmp_path / "out", tmp_path / "straight"
    ablate(source, out, "--heads=cross:0.1")
    capsys.readouterr()
    # Copies of data and checkpoint in another place count as the same
    write_data(tmp_path / "bin", SOURCES, targets)
    (tmp_path / "plain.pt").write_bytes((source / "plain.pt").read_bytes())
    ablate(tmp_path, out, "--heads=cross:0.0")
    assert "1/1 without cross:0.0" in capsys.readouterr().err
    ablate(source, straight, "--heads=cross:0.0,0.1")
    assert document(out)["removals"] == document(straight)["removals"]
    capsys.readouterr()
    ablate(source, out, "--heads=cross:0.1", "--trials=20", "--seed=5")
    assert " without " not in capsys.readouterr().err
    assert "ar:20|seed:5" in document(out)["significance"]["bleu_signature"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam=2"], "generation was .*'beam': 5, .* and is now .*'beam': 2, .*; choose another"),
        (["--scores=loss"], r"scores was \['loss', 'bleu', 'rouge'\] and is now \['loss'\]"),
        (["--path={gated}"], "checkpoint_sha256 was"),
        (["--gen-subset=other"], "data_sha256 was"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused(source, targets, finished, options, message):
    write_data(source / "bin", SOURCES, targets[::-1], "other")
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    options = [one.format(gated=source / "gated.pt") for one in options]
    with pytest.raises(ValueError, match=message):
        ablate(source, finished, FINISHED[0], *options)
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_an_overwritten_folder_has_no_old_results(source, tmp_path, monkeypatch):
    (tmp_path / "ablation.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"has an ablation.json but no removals.jsonl"):
        ablate(source, tmp_path)
    assert (tmp_path / "ablation.json").read_text() == "mine"
    monkeypatch.setattr(Scorer, "score", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ablate(source, tmp_path, "--scores=loss", "--heads=cross:0.2", "--overwrite")
    assert [path.name for path in tmp_path.iterdir()] == ["removals.jsonl"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scores=loss,chrf"], "--scores got 'loss,chrf': 'chrf' is not one of loss, bl"),
        (["--rouge-bytes=75"], "--rouge-bytes got 75, which needs rouge in --scores"),
        (["--trials=0"], "--trials got 0: sacreBLEU's test needs 1 or more"),
        (["--beam=0"], "--beam got 0: give 1 or more"),
        (["--heads=cross:9.0"], "--heads: the model has no head cross:9.0"),
        (["--sets", "cross:0.0,0.0"], "--sets: the head cross:0.0 is named twice"),
        (["--gen-subset=none"], "--gen-subset got 'none', which cannot be read from"),
        (["--gen-subset=single"], "--gen-subset single has 1 sentences, .* needs 2 or more"),
        (["--gen-subset=long"], "--gen-subset long: .*--skip-invalid-size-inputs-valid-test"),
        (["--sacrebleu-tokenize=moses"], "--sacrebleu-tokenize got 'moses': give one of 13a"),
        (["--path=a.pt:b.pt"], "--path got 2 checkpoints, 'a.pt:b.pt': give one"),
        (["--path=there/is/none.pt"], "there is no checkpoint there/is/none.pt"),
        (["--output", __file__], "is a file: give a folder"),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_written(source, tmp_path, options, message):
    with pytest.raises((ValueError, OSError), match=message) as refusal:
        ablate(source, tmp_path / "out", *options)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_without_scipy_losses_are_refused_before_anything_runs(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairseq-entmax\[analysis\]'"):
        ablate(source, tmp_path / "out")
    assert not list(tmp_path.iterdir())
    ablate(source, tmp_path / "out", "--scores=bleu", "--heads=cross:0.1")
    assert document(tmp_path / "out")["removals"]


def test_a_stopped_ablation_resumes_to_the_same_results(source, finished, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / RESULT).unlink()
    journal = out / "removals.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]) + lines[3][:9])
    ablate(source, out, *FINISHED)
    counted = set(re.findall(r"(\d+/\d+) without", capsys.readouterr().err))
    assert counted == {f"{number}/5" for number in range(1, 6)}
    assert (out / RESULT).read_bytes() == (finished / RESULT).read_bytes()
