"""The perplexity per word, compared with a hand calculation."""

import json
import math

import pytest
from perplexity import log_probs, main, measure

from tests.examples.tools.test_batches import write_index

# The log of fairseq-eval-lm for two lines of text, "In the beginning" and "God said", of which
# "beginning" is two subwords
LOG = """\
2026-11-22 18:00:00 | INFO | fairseq_cli.eval_lm | Namespace(data='x', path='7 [models]')
2026-11-22 18:00:01 | INFO | fairseq_cli.eval_lm | 1 ▁God [-1.250000]\t▁said [-0.750000]\t</s> [-0.125000]
2026-11-22 18:00:01 | INFO | fairseq_cli.eval_lm | 0 ▁In [-2.000000]\t▁the [-0.500000]\t▁begin [-3.000000]\tning [-0.062500]\t</s> [-0.250000]
2026-11-22 18:00:02 | INFO | fairseq_cli.eval_lm | Loss (base 2): 1.4314, Perplexity: 2.70
"""
NATS = 1.25 + 0.75 + 0.125 + 2 + 0.5 + 3 + 0.0625 + 0.25
LINES = ["In the beginning", "God said"]


def test_word_perplexity_divides_all_nats_by_words_and_line_ends():
    found = measure(LOG.split("\n"), LINES, 8, "a.log")
    assert found["nats"] == pytest.approx(NATS, abs=1e-12)
    # 5 words, 2 ends
    assert found["word_perplexity"] == pytest.approx(math.exp(NATS / 7), rel=1e-12)
    assert f"{found['subword_perplexity']:.2f}" == "2.70"  # as fairseq logs it


def test_without_subwords_both_perplexities_are_equal():
    log = "INFO:fairseq_cli.eval_lm:0 the [-1.5]\t<unk> [-2.5]\t</s> [-0.5]\t</s> [-0.25]\n"
    found = measure([log], [" the <unk> ", " "], 4, "a.log")
    assert found["word_perplexity"] == found["subword_perplexity"]
    assert found["word_perplexity"] == pytest.approx(math.exp(4.75 / 4), rel=1e-12)
    assert (found["words"], found["lines"], found["unknown"]) == (2, 2, 1)


def test_words_that_look_like_scores_are_read_as_words():
    log = "INFO:fairseq_cli.eval_lm:7 [ [-1.0]\t[-9] [-2.0]\t] [-3.0]\n"
    assert list(log_probs([log])) == [("[", -1.0), ("[-9]", -2.0), ("]", -3.0)]


@pytest.mark.parametrize(("log", "subwords"), [(LOG, 9), (LOG.replace("-3.000000", "-inf"), 8)])
def test_a_missing_or_infinite_score_is_an_error(log, subwords):
    with pytest.raises(ValueError, match=rf"a\.log has .* of 8 of the {subwords} subwords"):
        measure(log.split("\n"), LINES, subwords, "a.log")


def test_all_logs_are_in_one_table_and_one_file(tmp_path, capsys):
    write_index(tmp_path / "test.idx", [5, 3])
    (tmp_path / "test.en").write_text("\n".join([*LINES, ""]), encoding="utf-8")
    (tmp_path / "a.log").write_text(LOG, encoding="utf-8")
    (tmp_path / "b.log").write_text(LOG.replace("-3.000000", "-2.000000"), encoding="utf-8")
    json_file = tmp_path / "perplexity.json"
    logs = [f"alone={tmp_path / 'a.log'}", f"window={tmp_path / 'b.log'}"]
    arguments = ["--text", tmp_path / "test.en", "--data", tmp_path, "--json", json_file, *logs]
    main(list(map(str, arguments)))
    document = json.loads(json_file.read_text(encoding="utf-8"))
    assert document["alone"]["nats"] - document["window"]["nats"] == pytest.approx(1.0)
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["evaluation", "word", "ppl"]
    assert "subword" in first
    for row, name in zip(rows, ("alone", "window"), strict=True):
        assert row.split()[:2] == [name, f"{document[name]['word_perplexity']:.2f}"]
