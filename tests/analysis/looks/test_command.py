"""The command ``fairseq-entmax look``, and the page that it writes."""

import json
import re

import pytest
import torch

from fairseq_entmax import cli
from fairseq_entmax.analysis import look
from fairseq_entmax.analysis.document.maps import decode_weights
from fairseq_entmax.analysis.looks import page
from fairseq_entmax.analysis.looks.look import of_checkpoint
from tests.analysis.report.test_page import embedded

pytestmark = pytest.mark.slow

CUT = "▁w1 w2 ▁w3 w4 w6"


def run(*words):
    return cli.main(["look", *map(str, words)])


@pytest.fixture
def given(tiny):
    return tiny / "plain.pt", "--data", tiny / "bin", "--cpu"


def test_links_are_printed_and_a_page_with_words_is_written(given, tmp_path, capsys, refused):
    output = tmp_path / "look.html"
    command = (*given, "--text", CUT, "--max-len-b", 6, "--words", "--output", output)
    assert run(*command) == 0
    out = capsys.readouterr().out
    assert f"text: {CUT}" in out
    assert "note: translated by beam search of 5" in out
    assert re.search(r"^cross, mean of 8 heads in 2 layers:$", out, re.MULTILINE)
    assert "w3w4w6" in out
    data = embedded(output.read_text(encoding="utf-8"))
    assert data["sentences"][0]["source"] == ["w1w2", "w3w4w6", "</s>"]
    assert not any(head["roles"] for layer in data["layers"] for head in layer["heads"])
    assert "exists: give another name, or --overwrite" in refused(run, *command)
    assert run(*command, "--overwrite") == 0


def test_json_has_every_weight(given, capsys):
    assert run(*given, "--text", CUT.upper(), "--translation", CUT, "--lower", "--json") == 0
    (sentence,) = json.loads(capsys.readouterr().out)["sentences"]
    expected = look(str(given[0]), CUT, CUT, data=str(given[2]))
    assert sentence["tokens"] == expected.tokens
    found = {name: [*map(torch.tensor, own)] for name, own in sentence["attention"].items()}
    torch.testing.assert_close(found, expected.attention, atol=0, rtol=0)


def test_a_file_has_sentences_and_their_translations(given, tmp_path, capsys):
    (tmp_path / "in.tsv").write_text(f"{CUT}\t▁w9\n\n▁w5\t▁w7 w8\r\n", encoding="utf-8")
    assert run(*given, "--input", tmp_path / "in.tsv", "--layer", 1, "--head", 2) == 0
    out = capsys.readouterr().out
    assert out.count("cross, layer 1, head 2:") == 2
    assert "translation (given): ▁w7 w8\n" in out


def test_the_page_has_maps_and_the_measures_of_single_sentences(tiny):
    options = ["--cpu", "--max-len-b", "6"]
    opened = of_checkpoint(str(tiny / "plain.pt"), str(tiny / "bin"), options)
    for words, given in ((False, ["▁w7 w8", "▁w1"]), (True, None)):
        looks = opened.look([CUT, "▁w5"], given)
        looks = [one.words() for one in looks] if words else looks
        analysis = page.analysis_of(opened, looks)
        assert analysis["data"]["own"] == {"words": words}
        if given is None:
            assert (analysis["of"], analysis["search"]["beam"]) == ("generated", 5)
            number = sum(len(one._item.target) for one in looks)
            assert analysis["models"][0]["generated"]["tokens"] == number
        for entry, one in zip(analysis["maps"], looks, strict=True):
            assert (entry["source"], entry["targets"]) == (one.tokens, one.target_tokens)
            for item in entry["models"][0]:
                weights = one.attention[item["attention"]][item["layer"]]
                assert torch.allclose(decode_weights(item), weights, atol=1e-3)
                assert torch.equal(decode_weights(item) == 0, weights == 0)
    heads = [h for layer in analysis["models"][0]["attentions"] for h in layer["heads"]]
    for name in ("relevance", "gradient", "rare_word", "final_punctuation"):
        assert {head[name] for head in heads} == {None}
    assert None not in {head["density"] for head in heads}


def test_write_report_works_in_python_and_for_long_texts(texts, tmp_path):
    found = look(str(texts / "pruned.pt"), " ".join([CUT] * 14), data=str(texts / "bin"))
    found.words().write_report(tmp_path / "look.html")
    assert "sentences of your own" in (tmp_path / "look.html").read_text(encoding="utf-8")
    with pytest.raises(FileExistsError):
        found.write_report(tmp_path / "look.html")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a sentence with --text"),
        (("--text", "w1"), "it is unknown how to segment a text into them: give --bpe sentencepiece"),
        (("--text", CUT, "--layer", 7), "--layer got 7: cross has layers 0 to 1"),
        (("--text", CUT, "--translation", "a", "--translation", "b"), "is given 2 times, but --text 1"),
        (("--input", "nowhere.txt"), "look: nowhere.txt: No such file or directory"),
        (("--text", CUT, "--bpe", "sentencepiece"), "needs --sentencepiece-model FILE"),
        (("--text", CUT, "--output", "no/look.html"), "there is no folder"),
        (("--text", CUT, "--beam", 0), "--beam got 0: give 1 or more"),
    ],
)  # fmt: skip
def test_wrong_arguments_give_a_one_line_error(given, refused, words, message):
    error = refused(run, *given, *words)
    assert message in error
    assert error.startswith("fairseq-entmax look: ")
    assert "--path" not in error


def test_a_missing_checkpoint_or_data_is_refused(tiny, refused):
    for words, message in (
        ([], "give CHECKPOINT first"),
        (["no.pt", "--text", "a"], "there is no checkpoint no.pt"),
        ([tiny / "plain.pt", "--text", "a"], "give --data DATA-BIN"),
    ):
        assert message in refused(run, *words)
