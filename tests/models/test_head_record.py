"""What heads learn in training, as files in the save directory and in fairseq's logs."""

import json
import math

import pytest
import torch
from fairseq.logging import metrics

from fairseq_entmax.attention import attention_modules
from fairseq_entmax.head_records import read_record
from tests.support import batch, build_model


def step(trainer, model):
    """One training step, after which every logit is larger by 0.01."""
    model.train()
    model.set_num_updates(trainer.updates)
    model(**batch([4, 3], [3, 4])["net_input"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    trainer.updates += 1


def validate(model):
    model.eval()
    model(**batch([4, 3], [3, 4])["net_input"])


def logged_by(model):
    model.set_num_updates(0)
    with metrics.aggregate(new_root=True) as meters:
        validate(model)
        return meters.get_smoothed_values()


def updates(path):
    return [record["update"] for record in read_record(path / "alpha.jsonl")]


def test_a_line_has_the_number_of_updates_and_the_alpha_of_every_head(tmp_path, trainer):
    # A new training in an old folder starts a new record
    for start in (1.3, 1.5):
        trainer.updates = 0
        step(trainer, build_model(save_dir=str(tmp_path), alpha_init=start))
        lines = (tmp_path / "alpha.jsonl").read_text().splitlines()
        layers = {"0": [start] * 4, "1": [start] * 4}
        alphas = dict.fromkeys(("encoder-self", "decoder-self", "cross"), layers)
        assert [json.loads(line) for line in lines] == [{"update": 0, "alpha": alphas}]


def test_lines_are_written_at_the_interval_and_at_each_validation(tmp_path, trainer):
    model = build_model(save_dir=str(tmp_path), alpha_log_interval=4)
    for number in range(10):
        step(trainer, model)
        if number == 4:
            checkpoint = {name: value.clone() for name, value in model.state_dict().items()}
            validate(model)
            validate(model)
    validate(model)
    assert updates(tmp_path) == [0, 4, 5, 8, 10]
    # When training resumes from the checkpoint, its line is kept, and those after it are not; the
    # last one was being written when training stopped
    with (tmp_path / "alpha.jsonl").open("a") as file:
        file.write('{"update": 12, "alpha": {"enc')
    trainer.updates = 5
    model = build_model(save_dir=str(tmp_path), alpha_log_interval=4)
    model.load_state_dict(checkpoint)
    step(trainer, model)
    assert updates(tmp_path) == [0, 4, 5]
    # A process that resumes and stops before its first line still removes stale lines
    trainer.updates = 5
    step(trainer, build_model(save_dir=str(tmp_path), alpha_log_interval=4))
    assert updates(tmp_path) == [0, 4]


def test_nothing_is_written_where_nothing_has_to_be_recorded(tmp_path, trainer):
    for options in ({"alpha_log_interval": 0}, {"no_save": True}, {"attn_mapping": "entmax15"}):
        model = build_model(save_dir=str(tmp_path), **options)
        step(trainer, model)
        validate(model)
    model = build_model(save_dir=str(tmp_path))
    validate(model.train())  # outside of training
    trainer.rank = 1
    step(trainer, model)
    assert list(tmp_path.iterdir()) == []


def test_the_log_has_mean_minimum_and_maximum_of_each_attention(trainer):
    model = build_model()
    logits = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    with torch.no_grad():
        for _, _, module in attention_modules(model):
            module.mapping.alpha_logit.copy_(logits)
    logged, alphas = logged_by(model), 1 + torch.sigmoid(logits)
    for attention in ("encoder_self", "decoder_self", "cross"):
        for name in ("mean", "min", "max"):
            expected = getattr(alphas, name)().item()
            assert logged[f"alpha_{attention}_{name}"] == pytest.approx(expected, abs=1e-4)


APART = {"attn_mapping": "sqpnormmax:p=learned|entmax:tv=learned*2|softmax", "alpha_init": "1.5"}


def test_missing_values_are_null_in_the_record_and_left_out_of_the_log(tmp_path, trainer):
    model = build_model(save_dir=str(tmp_path), **APART)
    step(trainer, model)
    first = {}
    for name in ("alpha", "tv", "p"):
        (record,) = read_record(tmp_path / f"{name}.jsonl", name)
        first[name] = record[name]["cross"]["0"]
    assert first == {
        "alpha": [None, 1.5, 1.5, 1.0],
        "tv": [None, 0.1, 0.1, None],
        "p": [1.5, None, None, None],
    }
    assert "NaN" not in (tmp_path / "tv.jsonl").read_text()
    model = build_model(**APART)
    logged = logged_by(model)
    found = {name: logged[f"{name}_cross_mean"] for name in ("alpha", "tv", "p")}
    assert found == pytest.approx({"alpha": 1.5, "tv": 0.1, "p": 1.5}, abs=1e-4)
    assert logged["alpha_cross_min"] == pytest.approx(1.5, abs=1e-4)  # softmax stays at 1
    assert "gamma_cross_mean" not in logged
    # A value that became NaN is not treated as missing
    with torch.no_grad():
        model.decoder.layers[0].encoder_attn.mapping.parts[1].raw_tv[0] = torch.nan
    assert math.isnan(logged_by(model)["tv_cross_mean"])


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense", "[" * 100_000, '{"update": 1e999, "alpha": {}}'),
        *("[1]", '{"update": 1}', '{"update": 1, "alpha": null}'),
    ],
    ids=lambda line: line[:30],
)
def test_a_malformed_line_is_reported_with_its_number(tmp_path, line):
    path = tmp_path / "alpha.jsonl"
    path.write_text(f'{{"update": 0, "alpha": {{}}}}\n{line}\n{{"update": 2, "alpha": {{}}}}\n')
    with pytest.raises(ValueError, match=r"alpha.jsonl, line 2: not a line of alpha.jsonl"):
        read_record(path)
    path.write_bytes(b"\x93\xff\n" * 3)
    with pytest.raises(ValueError, match=r"alpha\.jsonl is not a UTF-8 text: "):
        read_record(path)


def test_a_damaged_record_stops_training_in_one_line(tmp_path, trainer, stopped):
    (tmp_path / "alpha.jsonl").write_text("nonsense\nmore\n")
    _, output = stopped(step, trainer, build_model(save_dir=str(tmp_path)))
    assert "alpha.jsonl, line 1: not a line of alpha.jsonl; move it away, or give another" in output
