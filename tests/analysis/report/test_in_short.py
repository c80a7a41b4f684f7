"""The page's first lines: how sparse each model's heads are, and which could be removed."""

from fairseq_entmax.analysis.report.in_short import in_short


def analysis(*heads, **data):
    layer = {"attention": "cross", "layer": 1, "heads": []}
    for number, (density, more) in enumerate(heads):
        layer["heads"].append({"head": number, "density": density, "gate": None, **more})
    return {"data": data, "models": [{"name": "one", "attentions": [layer]}]}


def text(*heads, **data):
    ((name, words),) = in_short(analysis(*heads, **data))
    assert name == "one"
    return words


def test_sparse_heads_are_counted_and_the_sparsest_is_named():
    words = text((0.3, {}), (0.042, {}), (0.95, {}), (0.01, {"gate": 0}), (0.6, {}))
    assert words.startswith("Heads: 5, 1 of them closed. ")
    assert "less than half of the words: 2; at 90 % of them or more: 1." in words
    assert "The sparsest is cross, layer 1, head 1, with a density of 0.042." in words
    assert words.endswith("Run fairseq-entmax ablate to find out which heads could be removed.")
    assert "head 0, with a density of >0.999." in text((0.9999, {}))  # not of 100 %


def test_softmax_leaves_out_nothing():
    assert "No head gives any word a weight of exactly zero." in text((1.0, {}), (1.0, {}))


def test_heads_whose_removal_makes_no_score_worse_could_go():
    def removed(change, *significant):
        return {"ablation": {"loss": change}, "significant": list(significant)}

    heads = [(0.5, removed(0.2, "loss")), (0.5, removed(0.01)), (0.5, removed(-0.004))]
    words = text(*heads, (0.5, removed(-0.1, "loss")), (0.5, {**removed(-1), "gate": 0}))
    assert "Of 4 heads that were removed one at a time, 3 made no score significantly" in words
    assert words.endswith("head 3; cross, layer 1, head 2; cross, layer 1, head 1.")
    assert "could be removed first" not in text(heads[0])
    assert "do not show which could go" in text(*heads[1:])


def test_nothing_is_said_without_density_or_for_the_users_own_sentences():
    advice = "Run fairseq-entmax ablate to find out which heads could be removed."
    assert text((None, {})) == f"Heads: 1. {advice}"
    assert in_short(analysis((0.3, {}), own={"words": False})) == []
