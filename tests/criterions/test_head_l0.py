"""The criterion: cross-entropy plus the penalty, however sentences are batched."""

import math
import pickle

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_entmax.attention import gates as gates_module
from fairseq_entmax.criterions import plain_criterion, with_head_l0
from fairseq_entmax.criterions.copying import CopyCrossEntropyCriterion
from fairseq_entmax.criterions.head_l0 import NAME
from tests.language_models import build_text_model
from tests.support import all_gates, batch, build_model, tiny_task

GATES = "encoder-self,cross"  # 8 heads each
# fairseq's log-softmax is in float32, even for a float64 model, and losses are up to 1,000
TOLERANCE = 1e-4
LOG_A = torch.tensor([3.0, -0.4, 0.8, -3.5])
CROSS_ENTROPY = "cross_entropy_with_head_l0"


@pytest.fixture
def fixed_draws(monkeypatch):
    """Use the same draw in each batch, so that only the split into batches differs."""

    def draw(gates, *key):
        for gate in gates:
            gate.use_draw(torch.full((gate.num_heads,), 0.6))

    monkeypatch.setattr(gates_module, "draw", draw)


def gated_model(arch="entmax_transformer", **options):
    options = {"head_gates": GATES, "attn_mapping": "softmax", **options}
    model = build_model(arch, **options).double()
    with torch.no_grad():
        for gate in all_gates(model):
            gate.weight.copy_(LOG_A / gate.lr_factor)
    return model


def criterion(sentence_avg=False, name=NAME, **options):
    """The criterion as fairseq builds it from the options of a command line."""
    given = {"sentence_avg": sentence_avg, "max_update": 0, **options}
    if "adaptive" in name:
        given["ddp_backend"] = "legacy_ddp"
    elif name != CROSS_ENTROPY:
        given["label_smoothing"] = 0.1
    options = CRITERION_DATACLASS_REGISTRY[name](**given)
    return CRITERION_REGISTRY[name].build_criterion(options, tiny_task())


def sample():
    return batch([9, 7, 6, 4, 3], [6, 8, 5, 3, 7], left_pad_source=True, left_pad_target=False)


def part(whole, rows):
    """Some sentences of a batch as a separate batch."""
    target = whole["target"][rows]
    return {
        "net_input": {name: value[rows] for name, value in whole["net_input"].items()},
        "target": target,
        "ntokens": int(target.ne(tiny_task().target_dictionary.pad()).sum()),
    }


def expected_heads(model):
    """C of the model: the expected number of open heads among those that a gate may close."""
    return sum(g.probability_open()[~g.is_protected].sum().item() for g in all_gates(model))


STOCKS = {
    NAME: lambda sentence_avg: LabelSmoothedCrossEntropyCriterion(tiny_task(), sentence_avg, 0.1),
    CROSS_ENTROPY: lambda sentence_avg: CrossEntropyCriterion(tiny_task(), sentence_avg),
    "adaptive_loss_with_head_l0": lambda sentence_avg: AdaptiveLoss(tiny_task(), sentence_avg),
    "copy_cross_entropy_with_head_l0": lambda sentence_avg: CopyCrossEntropyCriterion(
        tiny_task(), sentence_avg, 0.1
    ),
}
MODELS = {
    "adaptive_loss_with_head_l0": {"adaptive_softmax_cutoff": "5,9"},
    # Head 2 cannot be closed
    "copy_cross_entropy_with_head_l0": {"arch": "entmax_copy_transformer", "copy_heads": "2"},
}


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", STOCKS)
def test_the_loss_adds_lambda_times_the_expected_heads_to_the_stock_loss(
    name, training, sentence_avg, trainer, fixed_draws
):
    model = gated_model(**MODELS.get(name, {})).train(training)
    loss_of = criterion(sentence_avg, name, l0_weight=0.3)
    loss, size, log = loss_of(model, sample())
    stock_loss, stock_size, stock_log = STOCKS[name](sentence_avg)(model, sample())
    assert size == stock_size == (5 if sentence_avg else 29)
    penalty = size * 0.3 * expected_heads(model)
    assert (loss - stock_loss).item() == pytest.approx(penalty, abs=TOLERANCE)
    assert log["l0_penalty"].item() == pytest.approx(penalty, abs=TOLERANCE)
    assert log["loss"].item() == pytest.approx(loss.item(), abs=TOLERANCE)
    if name == NAME:
        # the perplexity is that of the cross-entropy alone
        assert log["nll_loss"].item() == pytest.approx(stock_log["nll_loss"].item(), abs=TOLERANCE)
        each, _, _ = loss_of(model, sample(), reduce=False)
        assert each.numel() > 1
        assert each.sum().item() == pytest.approx(loss.item(), abs=TOLERANCE)


SPLITS = [[[0, 1, 2, 3, 4]], [[0, 1, 2], [3, 4]], [[3], [0, 4], [1, 2]], [[0], [1], [2], [3], [4]]]


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("options", [{"l0_weight": 0.3}, {"target_heads": "5", "max_update": 40}])
def test_the_gradient_of_an_update_does_not_depend_on_the_split_into_batches(
    options, sentence_avg, trainer, fixed_draws
):
    found = []
    for split in SPLITS:
        model = gated_model().train()
        loss_of = criterion(sentence_avg, **options)
        for update in (0, 7):  # so that the multiplier is not zero
            trainer.updates = update
            model.zero_grad()
            sizes = []
            for rows in split:
                loss, size, _ = loss_of(model, part(sample(), rows))
                loss.backward()
                sizes.append(size)
        # as fairseq's trainer does over batches and workers
        found.append(torch.cat([gate.weight.grad for gate in all_gates(model)]) / sum(sizes))
    assert found[0].any()
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("sentence_avg", [False, True])
@pytest.mark.parametrize("name", [NAME, CROSS_ENTROPY])
def test_logged_numbers_except_the_loss_match_the_stock_criterion(name, sentence_avg, trainer):
    def logged(loss_of):
        with metrics.aggregate(new_root=True) as meters:
            for rows in ([0, 1, 2], [3, 4]):
                _, _, log = loss_of(model, part(sample(), rows))
                loss_of.reduce_metrics([log, log])
            return meters.get_smoothed_values()

    model = gated_model().eval()
    stock = logged(STOCKS[name](sentence_avg))
    found = logged(criterion(sentence_avg, name, l0_weight=0.3))
    penalty = 0.3 * expected_heads(model) / math.log(2)
    assert found["l0_penalty"] == pytest.approx(penalty, abs=1e-4)
    assert found["loss"] == pytest.approx(stock.pop("loss") + penalty, abs=2e-3)
    assert "ppl" in stock
    assert {key: found[key] for key in stock} == pytest.approx(stock, abs=2e-3)


class NatsCriterion(CrossEntropyCriterion):
    """Logs its loss in nats per sentence, with fairseq's default weight."""

    @classmethod
    def reduce_metrics(cls, logging_outputs):
        loss = sum(log["loss"] for log in logging_outputs)
        sentences = sum(log["nsentences"] for log in logging_outputs)
        metrics.log_scalar("loss", loss / sentences)


def test_the_logged_loss_keeps_the_stock_criterions_units_and_weights(monkeypatch):
    monkeypatch.setitem(CRITERION_REGISTRY, "nats_of_a_test", NatsCriterion)
    stock = CRITERION_DATACLASS_REGISTRY["cross_entropy"]
    monkeypatch.setitem(CRITERION_DATACLASS_REGISTRY, "nats_of_a_test", stock)
    made = with_head_l0(NatsCriterion)
    log = {"loss": 36.0, "l0_penalty": 6.0, "sample_size": 12, "nsentences": 3}
    with metrics.aggregate(new_root=True) as meters:
        made.reduce_metrics([log])
        made.reduce_metrics([{**log, "l0_penalty": 0.0, "sample_size": 24}])
    assert meters["loss"].avg == pytest.approx(12.0)
    assert meters["l0_penalty"].avg == pytest.approx(6.0 / 36 / math.log(2))


@pytest.mark.parametrize("training", [False, True])
def test_the_log_has_head_counts_for_the_model_and_each_attention(training, trainer):
    model = gated_model().train(training)
    with torch.no_grad():
        model.head_gates()["cross"][0].weight.fill_(-1.0)
    with metrics.aggregate(new_root=True) as meters:
        loss_of = criterion(l0_weight=0.3)
        _, _, log = loss_of(model, sample())
        loss_of.reduce_metrics([log, log])
        logged = meters.get_smoothed_values()
    for suffix, gates in {
        "": all_gates(model),
        "_encoder_self": list(model.head_gates()["encoder-self"].values()),
        "_cross": list(model.head_gates()["cross"].values()),
    }.items():
        expected = sum(gate.probability_open().sum().item() for gate in gates)
        assert logged[f"heads_expected{suffix}"] == pytest.approx(expected, abs=1e-3)
        is_open = torch.cat([gate.at_evaluation() > 0 for gate in gates])
        assert logged[f"heads_open{suffix}"] == is_open.sum().item()
    # in one layer all heads are closed; in the others one of 4 is closed and two are undecided
    assert (logged["heads_open"], logged["heads_undecided"], logged["l0_weight"]) == (9, 6, 0.3)
    assert "heads_open_decoder_self" not in logged
    with metrics.aggregate(new_root=True) as meters:
        criterion(target_heads="cross=4", max_update=40)(model, sample())
        assert meters.get_smoothed_values()["l0_weight_cross"] == 0.0


def test_validation_with_a_budget_uses_the_gates_of_generation_without_a_penalty(trainer):
    model = gated_model().eval()
    loss_of = criterion(target_heads="4", max_update=40)
    losses = []
    for update in (0, 10, 20):
        trainer.updates = update
        loss, _, _ = loss_of(model, sample())
        losses.append(loss.item())
    stock, _, _ = STOCKS[NAME](False)(model, sample())
    assert losses == pytest.approx([stock.item()] * 3, abs=TOLERANCE)
    assert not any(gate.weight.grad is not None for gate in all_gates(model))


def test_validation_by_the_trainer_decides_as_the_next_update_would(trainer):
    model = gated_model()
    loss_of = criterion(target_heads="4", decide_heads_at=3)
    for update in range(3):
        trainer.updates = update
        loss_of(model.train(), sample())
    trainer.updates = 3
    loss_of(model.eval(), sample())
    assert all(gate.is_decided for gate in all_gates(model))
    multipliers = model.pruning_state.multipliers.clone()
    loss_of(model.train(), sample())
    assert torch.equal(model.pruning_state.multipliers, multipliers)


def test_validation_without_a_trainer_changes_nothing_in_the_model(trainer):
    trainer.updates = None
    model = gated_model()
    model.pruning_state.set_updates(50)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    criterion(target_heads="4", decide_heads_at=3)(model.eval(), sample())
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())


def test_settings_of_the_stock_criterion_leave_out_those_of_the_penalty():
    stock = {"_name": "cross_entropy", "sentence_avg": False}
    settings = {**stock, "_name": CROSS_ENTROPY, "l0_weight": 0.1, "max_update": 9}
    assert plain_criterion(settings) == stock
    assert plain_criterion({**settings, "_name": "adaptive_loss"})["l0_weight"] == 0.1
    assert plain_criterion({}) == {}


def test_criterion_and_options_are_found_by_their_names():
    # fairseq compares class names when it restores the optimizer
    assert CRITERION_REGISTRY[NAME].__name__ == "LabelSmoothedCrossEntropyWithHeadL0"
    options = CRITERION_DATACLASS_REGISTRY[NAME]
    assert pickle.loads(pickle.dumps(options)) is options
    with pytest.raises(ValueError, match="_Loss is not a registered criterion with a config"):
        with_head_l0(torch.nn.modules.loss._Loss)


def test_gates_without_a_penalty_are_reported(caplog):
    model = build_model(head_gates="cross")
    model.prepare_criterion(criterion(l0_weight=0.1), None)
    assert not caplog.messages
    model.prepare_criterion(criterion(l0_weight=0.1).stock_criterion, None)
    criterion()
    first, second = caplog.messages
    assert first.startswith("--head-gates closes no head without a --criterion that ends in _wi")
    assert second.startswith("neither --l0-weight nor --target-heads was given to --criterion")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: build_model("transformer"), "encoder-self,decoder-self,cross to an arch"),
        (lambda: build_model(attn_mapping="softmax"), "any of encoder-self,decoder-self,cross$"),
        (build_text_model, "any of decoder-self$"),
    ],
)
def test_a_model_without_gates_is_refused_with_the_remedy(build, message):
    with pytest.raises(ValueError, match=f"--criterion .*_with_head_l0 .*--head-gates .*{message}"):
        criterion(l0_weight=0.1).check_model(build())
    with pytest.raises(ValueError, match="needs a model that copies"):
        criterion(name="copy_cross_entropy_with_head_l0").check_model(build())
    # A class named like that of fairscale, with which fairseq wraps the model
    sharded = type("FullyShardedDataParallel", (torch.nn.Module,), {})
    with pytest.raises(ValueError, match=r"--ddp-backend fully_sharded .* use --ddp-backend pyt"):
        criterion(l0_weight=0.1).check_model(sharded())
