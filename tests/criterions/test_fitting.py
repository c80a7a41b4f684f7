"""A loss that is infinite or undefined for a model is refused before training."""

import pytest
from fairseq.criterions import CRITERION_REGISTRY

from fairseq_entmax.criterions.fitting import check_loss
from tests.language_models import ADAPTIVE, build_text_model
from tests.support import MARKERS, build_model, build_roberta, marked_task

ALIGNING = "label_smoothed_cross_entropy_with_alignment"


def copying():
    options = {"source_position_markers": MARKERS}
    return build_model("entmax_copy_transformer", task=marked_task(), **options)


def across(mapping):
    return lambda: build_model(cross_attn_mapping=f"softmax,{mapping}")


CUTOFFS = {"adaptive_softmax_cutoff": "5,10"}
WITHOUT_SOFTMAX = ["entmax", "sparsemax", "entmax:alpha=1.01", "sparsemax|entmax*3"]
WITH_SOFTMAX = ["softmax", "entmax:alpha=1", "softmax|sparsemax|entmax|fusedmax"]
SMOOTHED = "label_smoothed_cross_entropy_with_head_l0"


@pytest.mark.parametrize(
    ("name", "build", "message"),
    [
        ("adaptive_loss", build_model, "needs a model with --.* 20000,60000: give it, or --"),
        ("adaptive_loss_with_head_l0", build_text_model, "--criterion cross_entropy_with_head_l0"),
        (SMOOTHED, lambda: build_model(**CUTOFFS), "give --criterion adaptive_loss_with_head_l0,"),
        ("cross_entropy", lambda: build_text_model(**ADAPTIVE), "does not train .* cutoffs out$"),
        (SMOOTHED, lambda: build_model(output_alpha=1.5), "entmax_loss_with_head_l0 --loss-alpha "),
        ("cross_entropy", lambda: build_text_model(output_alpha=2), "infinite if --output-alph"),
        (SMOOTHED, copying, "infinite with --source-pos.* 3, .* copy_cross_entropy_with_head_l0$"),
        *((ALIGNING, across(spec), "infinite if the last cross") for spec in WITHOUT_SOFTMAX),
        (ALIGNING, lambda: build_model(cross_attn_heads="4,0"), "infinite if the last cross"),
    ],
)
def test_an_unsuitable_loss_is_refused_with_a_suggestion(name, build, message):
    with pytest.raises(ValueError, match=f"--criterion {name}.*") as refusal:
        check_loss(CRITERION_REGISTRY[name], build())
    assert refusal.match(message)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("adaptive_loss", lambda: build_text_model(**ADAPTIVE)),
        ("cross_entropy", build_text_model),
        (SMOOTHED, build_model),
        ("entmax_loss", lambda: build_model(output_alpha=1.5)),
        *((f"copy_cross_entropy{ending}", copying) for ending in ("", "_with_head_l0")),
        ("cross_entropy", lambda: build_model("entmax_copy_transformer")),
        ("sentence_prediction", build_roberta),
        *((ALIGNING, across(spec)) for spec in WITH_SOFTMAX),
    ],
)
def test_suitable_losses_are_accepted(name, build):
    assert check_loss(CRITERION_REGISTRY[name], build()) is None
