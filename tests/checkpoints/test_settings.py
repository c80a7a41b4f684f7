"""What the settings in a checkpoint may consist of, and how large a model they may ask for."""

from argparse import Namespace
from collections import OrderedDict

import pytest
import torch

from fairseq_entmax.checkpoints import UnsafeCheckpointError, check_settings

WEIGHTS = {f"encoder.layers.{n}.fc1.weight": torch.zeros(64, 16) for n in range(12)}

SUBCLASSES = [OrderedDict(a=1), type("Settings", (Namespace,), {})(), type("Text", (str,), {})("")]


def check(where="cfg", weights=WEIGHTS, task=None, **settings):
    cfg = {"model": Namespace(**settings), "task": task or {}}
    state = {"cfg": cfg} if where == "cfg" else {"args": Namespace(**settings)}
    check_settings({**state, "model": weights}, "some.pt")


@pytest.mark.parametrize("where", ["cfg", "args"])
@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            3,
            -2,
            0.5,
            float("inf"),
            "",
            "a text",
            "entmax*5,softmax",
            "/data/a(1)",
            2**63,
        ),
        *([1, 2], (1, 2), {"a": {"b": [None]}}, {1: "x"}, Namespace(x=1), "a;b"),
    ],
)
def test_plain_values_are_let_through(where, value):
    check(where, some_setting=value)


@pytest.mark.parametrize("where", ["cfg", "args"])
@pytest.mark.parametrize(
    "value",
    [
        *(b"x", bytearray(b"x"), {1}, frozenset(), 1j, torch.zeros(1), torch.float16, object()),
        *(10**30, *SUBCLASSES),
    ],
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": (x,)}])
def test_other_values_are_refused_wherever_they_are(where, value, wrap):
    with pytest.raises(UnsafeCheckpointError, match=r"some\.pt: its setting \w+ = "):
        check(where, some_setting=wrap(value))


@pytest.mark.parametrize("part", ["cfg", "args"])
@pytest.mark.parametrize("value", ["model: {}", ["model"], 3, b"x"])
def test_settings_are_a_group(part, value):
    with pytest.raises(UnsafeCheckpointError, match=f"{part} = .* must be a group of settings"):
        check_settings({part: value, "model": {}}, "some.pt")


@pytest.mark.parametrize(
    "name",
    [
        *("adaptive_softmax_cutoff", "encoder_layers", "left_pad_source", "left_pad_target"),
        *("pipeline_balance", "pipeline_devices", "pipeline_encoder_balance", "adam_betas"),
    ],
)
@pytest.mark.parametrize(
    "text", ["print()", "print()\\\n\n", "x y", " ", "1 if 2 else 3", "/a/b", "x" * 200]
)
def test_a_text_that_is_evaluated_is_a_plain_value(name, text):
    with pytest.raises(UnsafeCheckpointError, match=rf"{name} = .* would run as code"):
        check(**{name: text})


@pytest.mark.parametrize(
    "text", ["", "True", "none", "(0.9, 0.98)", "[(512, 3)] * 20", "1,2", "-1"]
)
def test_a_plain_value_is_let_through_where_it_is_evaluated(text):
    check(adam_betas=text, decoder_attention=text, encoder_layers=text)


@pytest.mark.parametrize("name", ["arch", "_name", "task", "criterion", "bpe"])
def test_a_part_of_fairseq_is_named_by_a_name(name):
    check(**{name: "transformer_iwslt-de.en"})
    with pytest.raises(UnsafeCheckpointError, match="no name of a part"):
        check(**{name: "../../evil"})


def test_data_that_fairseq_reads_by_a_shell_is_refused():
    check(dataset_impl="mmap")
    with pytest.raises(UnsafeCheckpointError, match="dataset_impl = 'fasta'"):
        check(dataset_impl="fasta")


@pytest.mark.parametrize(
    "text",
    [
        *("${oc.env:HOME}", "${oc.decode:1}", "${task.a}${task.a}", "x${task.a}", "${${task.a}}"),
        *("${task}", "${.a}", "${", "${task.itself}", "${task.list}", r"\${task.a}"),
    ],
)
def test_a_reference_to_more_than_another_setting_is_refused(text):
    with pytest.raises(UnsafeCheckpointError, match="is replaced by"):
        check(task={"a": 1, "itself": "${task.itself}", "list": []}, some_setting=text)


def test_a_reference_to_another_setting_is_looked_at_as_what_it_stands_for():
    task = {"n": 10**9, "code": "print()", "text": "fine", "again": "${task.text}"}
    check(task=task, some_setting="${task.code}", other="${task.again}", missing="${task.none}")
    with pytest.raises(UnsafeCheckpointError, match=r"adam_betas = 'print.*run as code"):
        check(task=task, adam_betas="${task.code}")
    with pytest.raises(UnsafeCheckpointError, match="encoder_layers = 1000000000 asks"):
        check(task=task, encoder_layers="${task.n}")


@pytest.mark.parametrize(
    "settings",
    [
        *(
            {"encoder_layers": 10**9},
            {"decoder_layers": -(10**9)},
            {"encoder_layers": "1000000000"},
        ),
        *(
            {"encoder_layers": 1e9},
            {"encoder_layers": float("inf")},
            {"encoder": {"layers": 10**9}},
        ),
        *({"encoder_embed_dim": 10**6}, {"decoder_ffn_embed_dim": 10**6}, {"hidden_size": 10**6}),
        *({"encoder_attention_heads": 10**6}, {"encoder_layers": "[(1000000, 3)]"}),
        *({"max_source_positions": 10**9}, {"encoder_layers": 200, "encoder_embed_dim": 8192}),
        {"encoder": {"layers": 150, "embed_dim": 8192}},
    ],
)
def test_a_model_that_is_much_larger_than_its_weights_is_refused(settings):
    with pytest.raises(UnsafeCheckpointError, match="model much larger than the"):
        check(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_layers": 6, "encoder_embed_dim": 512, "max_source_positions": 100_000},
        {"encoder_layers": 100, "encoder_layers_to_keep": "0,2", "encoder_embed_dim": 1024},
        {"encoder_layers": "[(512, 3)] * 20", "decoder_out_embed_dim": 256},
        {"adaptive_softmax_cutoff": "60000,250000", "max_tokens": 10**9, "seed": 2**40},
    ],
)
def test_a_model_that_its_weights_bear_out_is_let_through(settings):
    check(**settings)


def test_a_large_model_is_let_through_with_its_weights():
    many = {f"layers.{n}.weight": torch.zeros(1) for n in range(1000)}
    check(weights={"wide": torch.zeros(50_000), **many}, encoder_layers=1000, encoder_embed_dim=16)
    check(weights={"wide": torch.zeros(50_000)}, encoder_layers=0, encoder_embed_dim=50_000)


@pytest.mark.parametrize(
    "weight",
    [
        torch.zeros(1).expand(50_000),
        torch.zeros(1, 1).expand(50_000, 50_000),
        torch.zeros(50_000, 0),
        torch.zeros(2).as_strided((25_000, 50_000), (0, 0)),
    ],
)
def test_the_shape_of_a_weight_that_is_not_stored_allows_no_width(weight):
    with pytest.raises(UnsafeCheckpointError, match="encoder_embed_dim = 50000 asks for"):
        check(weights={"weight": weight}, encoder_embed_dim=50_000)
    with pytest.raises(UnsafeCheckpointError, match=r"[012] weights in the file"):
        check(weights={"weight": weight}, encoder_layers=100, encoder_embed_dim=16_000)


def test_weights_that_share_what_is_stored_allow_no_layers():
    one = torch.zeros(1000)
    weights = {f"layers.{n}.weight": one[n:] for n in range(1001)}
    with pytest.raises(UnsafeCheckpointError, match="encoder_layers = 1000 asks for"):
        check(weights=weights, encoder_layers=1000, encoder_embed_dim=1)


@pytest.mark.parametrize("name", ["save_predictions", "post_save_script"])
@pytest.mark.parametrize("where", ["cfg", "args"])
def test_a_file_to_write_or_a_command_to_run_is_refused(name, where):
    check(where, **{name: None})
    check(where, **{name: ""})
    with pytest.raises(UnsafeCheckpointError, match=f"{name} = 'x' would write a file or run"):
        check(where, **{name: "x"})
