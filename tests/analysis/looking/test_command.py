"""The command ``fairseq-entmax look``, and the page it writes."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys

import pytest
import torch

from fairseq_entmax import cli
from fairseq_entmax.analysis import look
from fairseq_entmax.analysis.looking import opening, page
from fairseq_entmax.analysis.maps import decode_weights

CUT = "▁w1 w2 ▁w3 w4 w6"


def run(*words):
    return cli.main(["look", *map(str, words)])


@pytest.fixture
def given(tiny):
    return tiny / "plain.pt", "--data", tiny / "bin", "--cpu"


def test_a_shell_gets_links_and_a_page(tiny, tmp_path):
    command = [
        *("-m", "fairseq_entmax.cli", "look", tiny / "plain.pt", "--data", tiny / "bin"),
        *("--text", CUT, "--max-len-b", 6, "--words", "--output", tmp_path / "look.html"),
    ]
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"text: {CUT}" in done.stdout
    assert "note: translated by beam search of 5" in done.stdout
    assert re.search(r"^cross, mean of 8 heads in 2 layers:$", done.stdout, re.MULTILINE)
    assert "w3w4w6" in done.stdout
    html = (tmp_path / "look.html").read_text(encoding="utf-8")
    data = re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1]
    (sentence,) = json.loads(data)["sentences"]
    assert sentence["source"] == ["w1w2", "w3w4w6", "</s>"]


def test_json_has_every_weight(given, capsys):
    assert run(*given, "--text", CUT, "--translation", CUT, "--json") == 0
    (sentence,) = json.loads(capsys.readouterr().out)["sentences"]
    expected = look(str(given[0]), CUT, CUT, data=str(given[2]))
    assert sentence["tokens"] == expected.tokens
    for name, layers in expected.attention.items():
        for own, weights in zip(sentence["attention"][name], layers, strict=True):
            assert torch.equal(torch.tensor(own), weights)


def test_capitals_are_lowered_unless_it_is_forbidden(given, capsys):
    command = (*given, "--text", CUT.upper(), "--translation", CUT)
    assert run(*command) == 0
    out = capsys.readouterr().out
    assert "note: lower-cased, as the dictionary has no capital letter; --no-lower" in out
    assert "<unk>" not in out
    assert run(*command, "--no-lower") == 0
    out = capsys.readouterr().out
    assert "lower-cased" not in out
    assert "read as <unk>: ▁W1, W2" in out
    found = look(str(given[0]), CUT.upper(), CUT, data=str(given[2]), lower=False)
    assert found.tokens[0] == "<unk>"


def test_a_file_has_sentences_and_their_translations(given, tmp_path, capsys):
    (tmp_path / "in.tsv").write_text(f"{CUT}\t▁w9\n\n▁w5\t▁w7 w8\r\n", encoding="utf-8")
    assert run(*given, "--input", tmp_path / "in.tsv", "--layer", 1, "--head", 2) == 0
    out = capsys.readouterr().out
    assert out.count("cross, layer 1, head 2:") == 2
    assert "translation (given): ▁w7 w8\n" in out


def test_standard_input_is_a_file_too(given, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{CUT}\n▁w5\n".encode())))
    assert run(*given, "--input", "-", "--beam", 1, "--max-len-b", 4) == 0
    out = capsys.readouterr().out
    assert out.count("note: translated by greedy search") == 2


def documents(path, data, sentences, translations=None, words=False):
    session = opening.of_checkpoint(str(path), str(data), ["--max-len-b", "6", "--cpu"])
    looks = session.look(sentences, translations)
    looks = [one.words() for one in looks] if words else looks
    return page.analysis_of(session, looks), looks


def test_the_page_has_the_maps_of_the_sentences_and_says_that_they_are_ones_own(tiny):
    analysis, looks = documents(tiny / "plain.pt", tiny / "bin", [CUT, "▁w5"], ["▁w7 w8", "▁w1"])
    assert analysis["data"]["own"] == {"words": False}
    assert analysis["data"]["sentences"] == 2
    assert "of" not in analysis
    for entry, one in zip(analysis["maps"], looks, strict=True):
        assert (entry["source"], entry["targets"]) == (one.tokens, one.target_tokens)
        for item in entry["models"][0]:
            weights = one.attention[item["attention"]][item["layer"]]
            assert torch.allclose(decode_weights(item), weights, atol=1e-3)
            assert torch.equal(decode_weights(item) == 0, weights == 0)


def test_the_page_says_whose_sentences_they_are_and_names_no_roles(given, tmp_path):
    output = tmp_path / "look.html"
    assert run(*given, "--text", CUT, "--translation", CUT, "--output", output) == 0
    html = output.read_text(encoding="utf-8")
    library = re.search(r'id="library">(.*?)</script>', html, re.DOTALL)[1]
    assert "vegaEmbed" in library
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', html, re.DOTALL)[1])
    assert data["chosen"].startswith("The sentences are your own")
    assert not any(head["roles"] for layer in data["layers"] for head in layer["heads"])


def test_measures_that_ask_for_many_sentences_are_left_out(tiny):
    analysis, _ = documents(tiny / "plain.pt", tiny / "bin", [CUT], [CUT])
    heads = [h for layer in analysis["models"][0]["attentions"] for h in layer["heads"]]
    for name in ("relevance", "gradient", "rare_word", "final_punctuation"):
        assert {head[name] for head in heads} == {None}
    assert None not in {head["density"] for head in heads}


def test_the_page_on_a_models_own_translation_says_by_which_search(tiny):
    analysis, looks = documents(tiny / "plain.pt", tiny / "bin", [CUT], words=True)
    assert analysis["of"] == "generated"
    assert analysis["search"]["beam"] == 5
    assert analysis["models"][0]["generated"]["tokens"] == len(looks[0].of_tokens.target_tokens)
    assert analysis["data"]["own"] == {"words": True}
    assert analysis["maps"][0]["source"] == ["w1w2", "w3w4w6", "</s>"]


def test_nobody_has_said_the_label_of_ones_own_text(labelled, tmp_path):
    analysis, _ = documents(labelled / "sparse.pt", labelled / "bin", [CUT])
    (model,) = analysis["models"]
    assert model["loss"] is None
    assert model["classification"]["accuracy"] is None
    assert not any(map(any, model["classification"]["confusion"]))


@pytest.mark.parametrize("words", [(), ("--words",)])
def test_pages_of_texts_alone_and_of_classifiers_are_written(texts, labelled, tmp_path, words):
    for folder, name in ((texts, "pruned"), (labelled, "learned")):
        output = tmp_path / f"{name}.html"
        given = (folder / f"{name}.pt", "--data", folder / "bin", "--cpu")
        # Longer than what the map of a text alone shows
        assert run(*given, "--text", " ".join([CUT] * (14 if folder == texts else 2)), *words,
                   "--output", output) == 0  # fmt: skip
        assert "sentences of one&#x27;s own" in output.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the sentence by --text"),
        (("--text", "▁w1", "--input", "-"), "give the sentence by --text"),
        (("--text", " "), "a text is empty: give a sentence"),
        (("--text", "w1"), "nothing says how the text is cut into them: give --bpe sentencepiece"),
        (("--text", CUT, "--top", 0), "--top got 0: give 1 or more"),
        (("--text", CUT, "--layer", -1), "--layer got -1: give 0 or more"),
        (("--text", CUT, "--layer", 7), "--layer got 7: cross has the layers 0 to 1"),
        (("--text", CUT, "--head", 7), "--head got 7: cross has the heads 0 to 3"),
        (("--text", CUT, "--translation", "a", "--translation", "b"), "is there 2 times, and --text 1"),
        (("--text", CUT, "--translation", "a", "--second", "b"), "give one of them"),
        (("--text", CUT, "--second", "▁w1"), "classify no pairs: leave it out, or give"),
        (("--input", "nowhere.txt"), "--input got 'nowhere.txt': there is no such file"),
        (("--text", CUT, "--bpe", "sentencepiece"), "needs --sentencepiece-model FILE"),
        (("--text", CUT, "--bpe", "sentencepiece", "--sentencepiece-model", "no"), "no file no"),
        (("--text", CUT, "--output", "no/look.html"), "there is no folder"),
        (("--text", CUT, "--beam", 0), "--beam got 0: give 1 or more"),
        (("--text", CUT, "--nbest", 2, "--beam", 2), "--nbest got 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_sentence(given, capsys, words, message):
    assert run(*given, *words) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("fairseq-entmax look: ")
    assert "--path" not in error
    assert error.count("\n") == 1


def test_a_missing_checkpoint_data_or_several_are_refused(tiny, capsys):
    for words, message in (
        ((), "give CHECKPOINT first"),
        (("no.pt", "--text", CUT), "there is no checkpoint no.pt"),
        (("--beam", 4, tiny / "plain.pt", "--text", CUT), "stands in front of all options"),
        ((f"{tiny}/plain.pt:{tiny}/plain.pt", "--text", CUT), "one model, not of several"),
        ((tiny / "plain.pt", "--text", CUT), "give --data DATA-BIN"),
        ((tiny / "plain.pt", "--text", CUT, "--data", "nowhere"), "--data got 'nowhere'"),
        ((tiny / "bin", "--text", CUT), "there is no checkpoint"),
        (
            (tiny / "plain.pt", "--text", CUT, "--user-dir", "no"),
            "--user-dir: there is no folder no",
        ),
    ):
        assert run(*words) == 1
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_page_that_is_there_is_kept(given, tmp_path, capsys):
    output = tmp_path / "look.html"
    output.write_text("mine")
    assert run(*given, "--text", CUT, "--translation", CUT, "--output", output) == 1
    assert "exists: give another name, or --overwrite" in capsys.readouterr().err
    assert output.read_text() == "mine"
    assert run(*given, "--text", CUT, "--translation", CUT, "--output", output, "--overwrite") == 0
    assert output.stat().st_size > 10_000


def test_a_notebook_writes_the_page_too(tiny, tmp_path):
    found = look(str(tiny / "plain.pt"), CUT, CUT, data=str(tiny / "bin"))
    found.write_report(tmp_path / "look.html")
    assert "Attention heads of" in (tmp_path / "look.html").read_text(encoding="utf-8")
    with pytest.raises(FileExistsError):
        found.write_report(tmp_path / "look.html")
    assert json.dumps(found.as_json())


def test_help_has_its_own_options_and_fairseqs_where_asked(capsys):
    for option, is_all in (("--help", False), ("--help-all", True)):
        with contextlib.suppress(SystemExit):
            run(option)
        text = capsys.readouterr().out
        assert "--translation TEXT" in text
        assert ("--no-repeat-ngram-size" in text) == is_all
        assert (len(text.splitlines()) < 60) != is_all
