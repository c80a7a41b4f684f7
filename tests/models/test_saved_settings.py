"""Which settings of a checkpoint are taken for those of a model."""

from __future__ import annotations

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_entmax  # noqa: F401 - registers the architectures
from fairseq_entmax.checkpoints import MalformedCheckpointError
from fairseq_entmax.models.saved_settings import check_types

OURS = sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith("entmax"))


def settings_of(architecture, **other):
    settings = Namespace(arch=architecture, **other)
    ARCH_CONFIG_REGISTRY[architecture](settings)
    return vars(settings)


def check(architecture, settings):
    check_types(settings, ARCH_MODEL_REGISTRY[architecture], architecture, "m.pt")


@pytest.mark.parametrize("architecture", OURS)
def test_what_an_architecture_sets_fits_it(architecture):
    check(architecture, settings_of(architecture))


def test_a_switch_can_be_a_number_and_a_number_a_switch():
    """As fairseq's own architectures of language models have it."""
    check("entmax_transformer_lm", settings_of("entmax_transformer_lm", base_shuffle=False))
    check("entmax_transformer_lm", settings_of("entmax_transformer_lm", base_shuffle=1))
    check("entmax_transformer", settings_of("entmax_transformer", no_cross_attention=0))
    for wrong in (2, "yes", [True]):
        settings = settings_of("entmax_transformer", no_cross_attention=wrong)
        with pytest.raises(MalformedCheckpointError, match="no_cross_attention"):
            check("entmax_transformer", settings)
