"""``analyze`` on models that copy words, for references and for generated text."""

import math

import pytest
import torch

from fairseq_entmax.analysis import (
    decode_weights,
    document,
    head_relevance,
    head_sensitivity,
    load_model,
    load_samples,
    load_task,
    measure,
    record_attention,
)
from fairseq_entmax.analysis.data.generation import GeneratedDataset
from fairseq_entmax.analysis.data.tokens import TokenTable
from tests.analysis.ablation.test_command import write_data
from tests.analysis.data_types import small
from tests.analysis.importance.test_sensitivity import assert_matches_differences
from tests.analysis.test_generation import config
from tests.pruning.test_surgery import state_of, trained
from tests.support import MARKERS, batch, build_model, marked_task, random_sentences

pytestmark = pytest.mark.slow

COPY = "entmax_copy_transformer"
SHARED = {"share_all_embeddings": True}
# Sparse enough that some markers of the source get no weight
SPARSE = {**SHARED, "attn_mapping": "sparsemax", "copy_layer": 0, "copy_heads": "1,3"}
MARKED = {**SHARED, "attn_mapping": "sparsemax", "source_position_markers": 3}
SOURCES = random_sentences([5, 9, 3, 7, 11, 4, 6, 8])
SEARCH = ("--of=generated", "--beam=2", "--max-len-b=9", "--lenpen=0.9")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, and checkpoints of a model without copying, one with it, and one with markers."""
    folder = tmp_path_factory.mktemp("copies")
    # Half of each target consists of words of its source
    targets = [torch.cat([one[::2], one[-1:]]) for one in SOURCES]
    targets = [torch.cat([one[:-1][one[:-1] != 2], one[-1:]]) for one in targets]
    write_data(folder / "bin", SOURCES, targets)
    write_data(folder / "marked" / "bin", SOURCES, targets, markers=3)
    torch.save(state_of(trained(**SHARED), **SHARED), folder / "plain.pt")
    torch.save(state_of(trained(COPY, **SPARSE), COPY, **SPARSE), folder / "copy.pt")
    # Its dictionary is the folder's
    task = load_task(str(folder / "marked" / "bin"), "a", "b")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.tiny_task", lambda: task)
        torch.save(state_of(trained(COPY, **MARKED), COPY, **MARKED), folder / "marked" / "copy.pt")
    return folder


def analyze(folder, names, output, *more):
    return small.analysed(folder, "translation", names, output, "--relevance-sentences=2", *more)


@pytest.fixture(scope="module")
def generated(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("generated")
    return analyze(folder, ["plain", "copy"], output, *SEARCH, "--sentences=0,4")


@pytest.fixture(scope="module")
def marked(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("marked")
    return analyze(folder / "marked", ["copy"], output, "--sentences=1")


def test_the_document_names_the_search_and_marks_copy_heads(generated):
    assert generated["of"] == "generated"
    expected = {"task": "translation", "beam": 2, "max_len_b": 9, "lenpen": 0.9}
    assert expected.items() <= generated["search"].items()
    marks = []
    for number, model in enumerate(generated["models"]):
        assert 8 <= model["generated"]["tokens"] <= 80
        assert model["generated"]["empty"] == 0
        for one in model["attentions"]:
            if "copy_heads" in one:
                marks.append((number, one["attention"], one["layer"], one["copy_heads"]))
            # There is no rule to propagate relevance through a copy
            for head in one["heads"]:
                assert (head["relevance"] is None) == (number == 1)
    assert marks == [(1, "cross", 0, [1, 3])]
    assert "copying" not in generated["models"][0]
    # Each model has maps of its own text
    places = [(one["sentence"], one["model"]) for one in generated["maps"]]
    assert places == [(0, 0), (0, 1), (4, 0), (4, 1)]
    for one in generated["maps"]:
        assert [bool(maps) for maps in one["models"]] == [n == one["model"] for n in range(2)]
        cross = decode_weights(one["models"][one["model"]][-1])
        assert cross.shape[1:] == (len(one["targets"]), len(one["source"]))
        assert one["queries"] == ["</s>", *one["targets"][:-1]]


def test_measures_are_those_of_the_hypotheses(folder, generated):
    task = load_task(str(folder / "bin"), "a", "b")
    (sample,) = load_samples(task, "valid", range(8), at_once=8)
    options = config(beam=2, max_len_b=9, lenpen=0.9)
    for number, path in enumerate(("plain.pt", "copy.pt")):
        model = load_model(str(folder / path), task).model
        made_of = GeneratedDataset(task.dataset("valid"), model, task, options).generate(sample)
        attention, _ = record_attention(model, made_of)
        expected = document.rounded(measure(attention, made_of, task))
        for one in generated["models"][number]["attentions"]:
            found = expected[one["attention"]][one["layer"]]
            for given, head in zip(one["heads"], found["heads"], strict=True):
                for name in ("density", "confidence", "relative_position", "copy_agreement"):
                    near = head[name] and pytest.approx(head[name], rel=1e-4)
                    assert given[name] == near


def test_the_copied_share_is_a_mean_and_unreachable_markers_are_counted(folder, marked):
    task = load_task(str(folder / "marked" / "bin"), "a", "b")
    model = load_model(str(folder / "marked" / "copy.pt"), task).model
    losses, shares, gone = [], [], 0
    for sample in load_samples(task, "valid", range(8)):
        with torch.no_grad():
            log_probs, extra = model(**sample["net_input"])
        shares += (1 - torch.sigmoid(extra["copy"].switch[0, :-1].double())).tolist()
        of_targets = log_probs[0].gather(1, sample["target"][0][:, None])[:, 0].tolist()
        gone += sum(value == -math.inf for value in of_targets)
        losses += [-value for value in of_targets if value != -math.inf]
    assert gone > 0
    assert marked["models"][0]["copying"] == {
        "share": pytest.approx(sum(shares) / len(shares), rel=1e-5),
        "unreachable": gone,
    }
    assert marked["models"][0]["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert any(token.startswith("<unk-") for token in marked["maps"][0]["source"])


def test_markers_are_words_that_can_be_copied_but_not_rare_words(folder):
    task = load_task(str(folder / "marked" / "bin"), "a", "b")
    assert TokenTable.of(task.source_dictionary).rank[-3:].tolist() == [-1, -1, -1]
    assert TokenTable.of(task.source_dictionary).begins[-3:].all()
    (sample,) = load_samples(task, "valid", [1])
    marker = len(task.source_dictionary) - 1
    sample["net_input"]["src_tokens"][0, 2] = marker
    sample["net_input"]["prev_output_tokens"][0, 1] = marker
    sides = (sample["net_input"][name] for name in ("prev_output_tokens", "src_tokens"))
    weights = torch.zeros(1, 1, *(side.size(1) for side in sides))
    weights[..., 2] = 1
    head = measure({"cross": {0: weights}}, sample, task)["cross"][0]["heads"][0]
    assert head["copy_agreement"]["largest"] > 0


def test_the_gradient_is_that_of_the_mixture():
    model = trained(COPY, **{**SPARSE, "attn_mapping": "entmax15"}).double()
    sample = batch([6, 4], [5, 3])
    assert_matches_differences(head_sensitivity(model, sample), model, sample)
    with pytest.raises(ValueError, match="the output of a copying model is a mixture, and no"):
        head_relevance(model, sample)


def test_the_gradient_leaves_out_targets_that_cannot_be_copied():
    task, options = marked_task(), {"attn_mapping": "softmax", "source_position_markers": MARKERS}
    model, found = build_model(COPY, task=task, **options), []
    for target in (len(task.target_dictionary) - 1, task.target_dictionary.pad()):
        sample = batch([6, 4], [5, 3])
        sample["target"][0, 1] = target
        found.append(head_sensitivity(model, sample))
    torch.testing.assert_close(*found)


def test_the_search_for_summaries_is_recorded_with_its_options(folder, tmp_path):
    options = ("--task=entmax_summarization", "--length-penalty=wu", "--coverage-penalty=5")
    search = analyze(folder, ["copy"], tmp_path, *SEARCH, *options, "--sentences=")["search"]
    names = ("task", "length_penalty", "coverage_penalty", "lenpen")
    assert [search[name] for name in names] == ["entmax_summarization", "wu", 5, 0.9]
