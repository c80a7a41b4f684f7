"""fairseq's loss of alignments is refused where attention may give an aligned word no weight."""

import pytest
from fairseq.criterions import CRITERION_REGISTRY

from fairseq_entmax.criterions.alignment import check_for_alignments
from fairseq_entmax.mappings import parse_mappings

ALIGNING = CRITERION_REGISTRY["label_smoothed_cross_entropy_with_alignment"]


def mapping_of(spec):
    """Of a layer with four heads."""
    (layer,) = parse_mappings(spec)
    return layer.build(4)


@pytest.mark.parametrize(
    "spec", ["entmax", "sparsemax", "entmax:alpha=1.01", "sparsemax|entmax*3", None]
)
def test_a_layer_without_softmax_is_refused(spec):
    mapping = None if spec is None else mapping_of(spec)
    with pytest.raises(ValueError, match="is infinite where the last cross-attention gives"):
        check_for_alignments(ALIGNING, mapping)
    assert check_for_alignments(CRITERION_REGISTRY["cross_entropy"], mapping) is None


@pytest.mark.parametrize("spec", ["softmax", "entmax:alpha=1", "softmax|sparsemax|entmax|fusedmax"])
def test_one_head_with_softmax_is_enough(spec):
    assert check_for_alignments(ALIGNING, mapping_of(spec)) is None
