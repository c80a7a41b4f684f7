"""An analysis as a table."""

import math

from fairseq_entmax.analysis.document import summary
from tests.analysis.report.synthetic import synthetic_analysis


def test_a_line_has_the_means_of_an_attention_and_the_loss_in_nats_and_in_fairseqs_bits():
    analysis = synthetic_analysis(models=2, layers=2, heads=3, sentences=1, length=5)
    model = analysis["models"][1]
    analysis["models"][0]["loss"], model["loss"] = 2.0, None
    layers = [layer for layer in model["attentions"] if layer["attention"] == "cross"]
    for number, layer in enumerate(layers):
        layer["diversity"] = 0.1 + 0.3 * number
        for place, head in enumerate(layer["heads"]):
            head.update(
                values={"alpha": 1.0 + 0.25 * place}, density=0.5, entropy=None, positional=None
            )
    role = {"offset": -1, "share": 0.97, "confidence": 0.953}
    layers[0]["heads"][1].update(gate=0.0, positional=role, density=0.9)
    layers[1]["heads"][2]["positional"] = role
    lines = summary.as_table(analysis).splitlines()
    assert len(lines) == 1 + 2 * 3
    line = lines[6]
    assert line.split()[:3] == ["cross", "1.250", "0.500"]
    assert line.split()[4] == "0.250"  # without entropy: confidence, diversity
    assert line.endswith("1.2 at -1 (95%)")
    assert lines[4].split()[0] == model["name"]
    assert lines[5].startswith(" ")
    assert lines[0].index("positional heads") == line.index("1.2 at")
    assert "loss (nats a token)  (bits a token)  attention" in lines[0]
    assert f"  2.000           {2 / math.log(2):.3f}  encoder-self" in lines[1]
    assert "2.885" not in lines[4]
    assert summary.search_text({"lenpen": 0.0, "max_len_a": 0.0, "own": True}) == "lenpen 0.0, own"


def test_copy_heads_are_listed_with_their_agreement_and_the_best_other_head():
    analysis = synthetic_analysis(models=1, layers=2, heads=2, sentences=0)
    (model,) = analysis["models"]
    model["copying"] = {"share": 0.5, "unreachable": 0}
    layers = [layer for layer in model["attentions"] if layer["attention"] == "cross"]
    layers[0]["copy_heads"] = [1]
    heads = [head for layer in layers for head in layer["heads"]]
    for head, share in zip(heads, (0.1, 0.6, 0.4, 0.2), strict=True):
        head["copy_agreement"] = {"largest": share}
    assert summary.as_table(analysis).endswith("  0.1 (60%), next 1.0 (40%)")


def test_a_missing_record_is_mentioned_in_the_table():
    analysis = synthetic_analysis(models=3, layers=1, heads=2, sentences=0)
    assert "jsonl" not in summary.as_table(analysis)
    model = analysis["models"][2]
    model["records"] = {}
    text = summary.as_table(analysis).splitlines()[-1]
    assert "alpha.jsonl" in text
    assert model["checkpoint"] in text
