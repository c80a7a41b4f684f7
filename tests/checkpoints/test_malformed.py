"""Checkpoints that are safe and make no sense: one sentence, nothing written, nothing filled.

A slice of the mutations of :mod:`tests.checkpoints.mutations` is tried here.
``FAIRSEQ_ENTMAX_MUTATIONS=1000 python -m pytest tests/checkpoints/test_malformed.py`` tries so many,
and ``python -m tests.checkpoints.outcomes 1000`` counts what comes of them.
"""

import logging
import os
import shutil
from argparse import Namespace

import pytest
import torch
from fairseq import checkpoint_utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_entmax.checkpoints import (
    MalformedCheckpointError,
    check_contents,
    load_checkpoint,
)
from fairseq_entmax.models.saved import model_of_state, read_model
from fairseq_entmax.models.start import heads_of_start
from fairseq_entmax.pruning import prune_state
from tests.checkpoints import mutations, outcomes
from tests.language_models import TINY_LM, build_text_model
from tests.security import good
from tests.support import TINY, build_classifier, build_model

NUMBER = int(os.environ.get("FAIRSEQ_ENTMAX_MUTATIONS", "50"))
# More than a run of these commands takes, less than any of the sizes that are asked for
MOST_MEMORY = 2**30
QUERY = "encoder.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed")
    good.write_data(folder / "data")
    logging.disable(logging.WARNING)
    yield folder
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def state(folder):
    return outcomes.good_checkpoint(folder / "data")


def changed(state, mutation, path):
    """The file of a mutated checkpoint."""
    mutations.write(state, mutation, path)
    return str(path)


def setting(name, value):
    return ("cfg", "model", name), ("value", value)


def test_every_command_succeeds_on_the_checkpoint_that_is_mutated(folder, state, tmp_path):
    for command in outcomes.COMMANDS:
        (tmp_path / command).mkdir()
        place = tmp_path / command / "place"
        place.mkdir()
        torch.save(state, tmp_path / command / "good.pt")
        came = outcomes.outcome(command, tmp_path / command / "good.pt", folder / "data", place)
        # Its gates are all open
        assert came == "success", command


def test_a_mutated_checkpoint_gives_a_success_or_one_sentence_and_leaves_nothing(folder, state):
    before = outcomes.memory()

    @settings(
        max_examples=NUMBER,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(mutations.mutations(state, outcomes.USED), st.sampled_from(outcomes.SOME))
    def tried(mutation, commands):
        place = folder / "case" / "place"
        shutil.rmtree(folder / "case", ignore_errors=True)
        place.mkdir(parents=True)
        path = changed(state, mutation, folder / "case" / "bad.pt")
        for command in commands:
            came = outcomes.outcome(command, place.parent / "bad.pt", folder / "data", place)
            assert not came.startswith("BAD"), came
            if came == "success" and command.startswith("prune") and any(place.iterdir()):
                read_model(str(place / "new.pt"))  # what was written can be read
                (place / "new.pt").unlink()
        assert path == str(place.parent / "bad.pt")

    tried()
    assert outcomes.memory() - before < MOST_MEMORY


# A mutation, and what has to stand in the sentence
FAULTS = [
    (setting("encoder_layers", "'x'"), "setting encoder_layers is 'x', and has to be a whole"),
    (setting("encoder_attention_heads", "True"), "encoder_attention_heads is True, .*a whole"),
    (setting("encoder_attention_heads", "3"), "no model can be made: .*place for 3 heads at most"),
    (setting("encoder_attention_heads", "5"), "is 5, and has to be a divisor of encoder_embed_dim"),
    (setting("decoder_embed_dim", "None"), "setting decoder_embed_dim is None"),
    (setting("dropout", "4.0"), "setting dropout is 4.0, and has to be a number from 0 to 1"),
    (setting("activation_fn", "'x'"), "activation_fn is 'x', and has to be one of relu, gelu"),
    (
        setting("encoder_layers_to_keep", "'x'"),
        "encoder_layers_to_keep is 'x', .*numbers of layers",
    ),
    (setting("encoder_layers_to_keep", "-1"), "encoder_layers_to_keep"),
    (setting("attn_mapping", "3"), "no model can be made: .*a mapping must be a text"),
    (setting("encoder_layers", "10000"), "encoder_layers = 10000 asks for a model much larger"),
    (setting("encoder_embed_dim", "1000000000"), "encoder_embed_dim = 1000000000 asks for"),
    ((("optimizer_history",), ("value", "'x'")), "optimizer_history is 'x', and has to be a list"),
    ((("optimizer_history", 0), ("value", "3")), r"optimizer_history\[0\] is 3, .*a dictionary"),
    ((("optimizer_history", 0, "num_updates"), ("value", "'x'")), "is 'x', .*number of updates"),
    ((("cfg", "model"), ("value", "3")), "cfg.model is 3, and has to be a group of settings"),
    ((("extra_state",), ("value", "'x'")), "extra_state is 'x', and has to be a dictionary"),
    ((("model", QUERY), ("tensor", "flat")), r"is float32 \(256,\), and has to be \(16, 16\)"),
    ((("model", QUERY), ("tensor", "whole numbers")), r"is int64 .*of floating point"),
    ((("model", QUERY), ("tensor", "a row less")), r"is float32 \(15, 16\)"),
    ((("model", QUERY), ("tensor", "nan")), "has no finite number .*its training has diverged"),
    ((("model", QUERY), ("tensor", "sparse")), "it holds more than tensors and settings"),
    ((("model", QUERY), ("tensor", "repeated, not stored")), "1,000,000 numbers, fewer of which"),
    ((("model", QUERY), ("value", "3")), "is 3, and has to be a tensor"),
    ((("model", QUERY), ("drop", "")), f"has no weight {QUERY}"),
    ((("model", "decoder.layers.1.fc1.weight"), ("drop", "")), "no weight decoder.layers.1.fc1.w"),
    ((("model", "decoder.layers.1.fc1.bias"), ("tensor", "a row less")), r"has to be \(24,\)"),
    (
        (("model", "encoder.layers.0.self_attn.mapping.alpha_logit"), ("drop", "")),
        "not all weights",
    ),
    (
        (("model", "encoder.layers.0.self_attn.mapping.alpha_logit"), ("tensor", "a row less")),
        r"alpha_logit is float32 \(3,\), and has to be like float32 \(4,\)",
    ),
    (
        (("model", "encoder.layers.0.self_attn.gate.decision"), ("tensor", "twice the rows")),
        r"gate.decision is int8 \(8,\), and has to be like int8 \(4,\)",
    ),
]


@pytest.mark.parametrize(("mutation", "sentence"), FAULTS)
def test_the_sentence_names_the_file_the_field_what_it_is_and_what_it_has_to_be(
    mutation, sentence, state, tmp_path
):
    path = changed(state, mutation, tmp_path / "bad.pt")
    with pytest.raises((ValueError, RuntimeError), match=sentence) as refusal:
        read_model(path)
    said = str(refusal.value)
    assert path in said
    assert "\n" not in said
    assert any(word in said for word in ("take ", "Get the checkpoint", "of which no model"))


def test_what_is_malformed_is_refused_where_a_state_is_handed_in_too(state):
    with pytest.raises(MalformedCheckpointError, match=r"some\.pt is malformed: its extra_state"):
        prune_state({**state, "extra_state": 3}, "some.pt")


def test_fairseq_gets_no_checkpoint_whose_history_is_none(state, tmp_path):
    path = changed(state, (("optimizer_history",), ("value", "'x'")), tmp_path / "bad.pt")
    for load in (load_checkpoint, checkpoint_utils.load_checkpoint_to_cpu):
        with pytest.raises(MalformedCheckpointError, match="optimizer_history is 'x'"):
            load(path)


METER = (10, "loss", "AverageMeter", {"val": 1.0, "sum": 2.0, "count": 2, "round": 3})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("previous_training_time", "1"),
        ("best", [1]),
        ("val_loss", "x"),
        ("train_iterator", 3),
        ("train_iterator", {"epoch": "1", "iterations_in_epoch": 0}),
        ("train_iterator", {"epoch": 1, "iterations_in_epoch": -1}),
        ("metrics", [METER]),
        ("metrics", {"train": [METER[:3]]}),
        ("metrics", {"train": [("1", *METER[1:])]}),
        ("metrics", {"train": [(*METER[:2], "x", METER[3])]}),
    ],
)
def test_where_a_training_stood_and_what_it_measured_is_refused_by_name(key, value, state):
    good = {
        **{"previous_training_time": 1.5, "best": torch.tensor(2.0), "val_loss": None},
        **{"metrics": {"train": [METER]}, "train_iterator": {"epoch": 1, "version": 2}},
    }
    check_contents({**state, "extra_state": good}, "some.pt")
    with pytest.raises(MalformedCheckpointError, match=rf"its extra_state\['{key}'\]"):
        check_contents({**state, "extra_state": {**good, key: value}}, "some.pt")


@pytest.mark.parametrize("name", ["state", "param_groups"])
def test_half_the_state_of_an_optimizer_is_refused_and_that_of_several_is_not(name, state):
    whole = {"state": {}, "param_groups": [{"params": [0]}]}
    check_contents({**state, "last_optimizer_state": {"adam": whole}}, "some.pt")
    half = {key: value for key, value in whole.items() if key != name}
    with pytest.raises(MalformedCheckpointError, match=rf"\['{name}'\] is missing"):
        check_contents({**state, "last_optimizer_state": half}, "some.pt")


def test_training_does_not_take_heads_from_a_malformed_start(state, tmp_path):
    path = changed(state, (("model", QUERY), ("tensor", "flat")), tmp_path / "bad.pt")
    args = Namespace(save_dir=str(tmp_path), restore_file="x.pt", finetune_from_model=path)
    with pytest.raises(MalformedCheckpointError, match=r"\(256,\)"):
        heads_of_start(args)


@pytest.mark.parametrize("value", [3, torch.ones(3).to_sparse(), "x"])
def test_a_model_takes_no_weights_that_are_no_tensors_of_numbers(value):
    model = build_model()
    weights = {**model.state_dict(), QUERY: value}
    with pytest.raises(ValueError, match=f"the checkpoint is malformed: its weight {QUERY} is"):
        model.load_state_dict(weights)


def test_reading_leaves_the_random_numbers_of_training_alone(state):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    model_of_state(state, "some.pt")
    assert torch.equal(torch.rand(3), expected)


def test_the_weights_of_what_pools_are_held_against_its_mapping():
    weights = build_classifier(pooling_mapping="entmax").state_dict()
    name = next(name for name in weights if name.startswith("poolings") and "alpha" in name)
    settings = {**TINY, "arch": "entmax_classifier", "pooling_mapping": "entmax"}
    state = {"cfg": {"model": settings}, "model": weights}
    assert model_of_state(state, "some.pt").attentions
    with pytest.raises(MalformedCheckpointError, match=f"weight {name} is"):
        model_of_state({**state, "model": {**weights, name: torch.ones(7)}}, "some.pt")


def own_weights_of(kind):
    """A checkpoint of a model that has weights of its own beside its Transformer's, and theirs."""
    if kind == "copying":
        settings, model = (
            {"arch": "entmax_copy_transformer"},
            build_model("entmax_copy_transformer"),
        )
    elif kind == "pair":
        settings = {"arch": "entmax_classifier", "pair_attention": True}
        model = build_classifier(pair_attention=True)
    else:
        settings = {**TINY_LM, "arch": "entmax_transformer_lm", "decoder_input_dim": 8}
        model = build_text_model(decoder_input_dim=8)
    weights = model.state_dict()
    parts = ("copy_switch", "poolings", "classification_heads", "combine", "project_in_dim")
    own = [name for name in weights if any(part in name for part in parts)]
    return {"cfg": {"model": {**TINY, **settings}}, "model": weights}, own


@pytest.mark.parametrize("kind", ["copying", "pair", "text"])
def test_what_a_model_has_beside_its_transformer_is_held_against_its_settings_too(kind):
    state, own = own_weights_of(kind)
    assert model_of_state(state, "some.pt").attentions
    assert own
    for name in own:
        value = state["model"][name]
        for other in (value.reshape(-1)[0], torch.cat([value] * 2, -1)[None], value.long()):
            with pytest.raises(MalformedCheckpointError, match=f"weight {name} is"):
                model_of_state({**state, "model": {**state["model"], name: other}}, "some.pt")


@pytest.mark.parametrize("kind", ["copying", "pair"])
def test_what_copies_and_pools_has_to_be_there(kind):
    state, own = own_weights_of(kind)
    for name in own:
        if "classification_heads" in name or ".mapping." in name:
            continue
        weights = {key: value for key, value in state["model"].items() if key != name}
        with pytest.raises(MalformedCheckpointError, match=f"no weight {name}"):
            model_of_state({**state, "model": weights}, "some.pt")


def test_an_output_has_a_row_for_each_word_and_the_state_of_pruning_numbers_of_its_type(state):
    for name, change in (
        ("decoder.output_projection.weight", lambda w: w[:-1].clone()),
        ("pruning_state.multipliers", lambda w: w.to(torch.complex64)),
        ("pruning_state.num_updates", lambda w: w.bool()),
    ):
        weights = {**state["model"], name: change(state["model"][name])}
        with pytest.raises(MalformedCheckpointError, match=f"weight {name} is"):
            model_of_state({**state, "model": weights}, "some.pt")
