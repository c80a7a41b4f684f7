"""A teacher: the loss against a plain computation, and nothing else that changes."""

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.logging import metrics

from fairseq_entmax.criterions.teacher import Teacher
from fairseq_entmax.models.features.teaching import Teaching
from tests.language_models import build_text_model
from tests.pruning.test_surgery import state_of
from tests.support import batch, build_classifier, build_model, classification_task, tiny_task
from tests.training import make_trainer, save, train

WEIGHT = 0.3
CROSS_ENTROPY = "cross_entropy"


def written(folder, model, arch="entmax_transformer", **options):
    """The checkpoint of a model, as fairseq loads it."""
    state = state_of(model, arch, **options)
    state["optimizer_history"][0] |= {"optimizer_name": "adam", "lr_scheduler_state": {}}
    parts = {"args": state["cfg"]["model"], "cfg": None}
    path = str(folder / f"teacher-{arch}.pt")
    torch.save({**state, **parts}, path)
    return path


def criterion(name, task=None, **options):
    fields = CRITERION_DATACLASS_REGISTRY[name].__dataclass_fields__
    given = {"sentence_avg": False, "max_update": 0, "label_smoothing": 0.1, **options}
    chosen = {key: value for key, value in given.items() if key in fields}
    options = CRITERION_DATACLASS_REGISTRY[name](**chosen)
    return CRITERION_REGISTRY[name].build_criterion(options, task or tiny_task())


def sample():
    return batch([9, 7, 4], [6, 8, 3], left_pad_source=True, left_pad_target=False)


def logits(model, inputs):
    with torch.no_grad():
        return model(**inputs["net_input"])[0].double()


def taught(path, loss_of, weight=WEIGHT, task=None):
    teacher = Teacher(path, task or tiny_task(), weight)
    teacher.teach(build_model(), loss_of)
    return teacher


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("label_smoothed_cross_entropy", {}),
        (CROSS_ENTROPY, {}),
        ("label_smoothed_cross_entropy_with_head_l0", {"head_gates": "cross"}),
    ],
)
@pytest.mark.parametrize("arch", ["transformer", "entmax_transformer"])
def test_the_loss_is_the_criterions_and_the_kullback_leibler_divergence_of_each_word(
    arch, name, options, tmp_path
):
    # The student was pruned, and has sparse attention
    student = build_model(seed=2, cross_attn_heads="1,3", **options).train()
    path = written(tmp_path, build_model(arch), arch)
    plain, loss_of = (criterion(name, l0_weight=0.2) for _ in range(2))
    teacher = taught(path, loss_of)
    inputs = sample()
    for gate in (g for layers in student.head_gates().values() for g in layers.values()):
        gate.decide(torch.ones(gate.num_heads))
    expected, size, own = plain(student, inputs)
    wanted = logits(teacher.model, inputs).log_softmax(-1)
    found = logits(student, inputs).log_softmax(-1)
    each = (wanted.exp() * (wanted - found)).sum(-1)
    divergence = each[inputs["target"] != 1].sum()
    penalty = own.get("l0_penalty", torch.zeros(()))
    expected = (1 - WEIGHT) * (expected - penalty) + penalty + WEIGHT * divergence
    with metrics.aggregate(new_root=True) as meters:
        loss, same_size, logged = loss_of(student, inputs)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert same_size == size
    shown = divergence.item() / size / 0.6931471805599453
    assert meters["teacher_loss"].avg == pytest.approx(shown, rel=1e-4)
    assert {key: float(one) for key, one in logged.items()} == {k: float(v) for k, v in own.items()}
    loss.backward()
    assert all(parameter.grad is None for parameter in teacher.model.parameters())
    assert not teacher.model.training
    # In validation it is the criterion to the bit
    losses = [one(student.eval(), inputs)[0] for one in (plain, loss_of)]
    assert torch.equal(*losses)


def test_a_sparse_output_learns_by_its_own_loss_also_what_it_gives_no_probability(tmp_path):
    options = {"output_alpha": 1.5}
    student = build_model(seed=2, **options).train()
    with torch.no_grad():
        student.decoder.output_projection.weight.mul_(8)
    loss_of, inputs = criterion("entmax_loss"), sample()
    teacher = taught(written(tmp_path, build_model()), loss_of, 1.0)
    # With the weight 1 the gradient of each score is p - q
    outputs = []
    student.decoder.output_projection.register_forward_hook(
        lambda _, __, output: output.retain_grad() or outputs.append(output)
    )
    loss_of(student, inputs)[0].backward()
    (scores,) = outputs
    probs = student.get_normalized_probs((scores.detach(), None), False)
    assert (probs == 0).any()
    wanted = logits(teacher.model, inputs).softmax(-1).float()
    is_real = (inputs["target"] != 1)[..., None]
    torch.testing.assert_close(scores.grad, (probs - wanted) * is_real, atol=1e-5, rtol=0)


MODELS = {
    "entmax_transformer": (CROSS_ENTROPY, {}),
    "entmax_copy_transformer": (
        "copy_cross_entropy",
        {"copy_heads": "2", "copy_mapping": "sparsemax"},
    ),
    "entmax_transformer_lm": (CROSS_ENTROPY, {}),
    "entmax_classifier": ("sentence_prediction", {}),
}


@pytest.mark.parametrize("arch", MODELS)
def test_models_of_every_kind_learn_and_have_nothing_to_learn_from_themselves(arch, tmp_path):
    name, options = MODELS[arch]
    task = classification_task() if arch == "entmax_classifier" else None
    inputs = sample()
    if arch == "entmax_classifier":
        make = lambda seed: build_classifier(seed, task)  # noqa: E731
        tokens = inputs["net_input"]["src_tokens"].flip(1)
        inputs = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([9, 7, 4])}}
        inputs |= {"target": torch.tensor([[0], [1], [2]]), "ntokens": 20}
    elif arch == "entmax_transformer_lm":
        make = lambda seed: build_text_model(seed=seed)  # noqa: E731
        tokens = inputs["net_input"]["prev_output_tokens"]
        inputs = {**inputs, "net_input": {"src_tokens": tokens}}
    else:
        make = lambda seed: build_model(arch, seed, **options)  # noqa: E731
    teacher = object.__new__(Teacher)
    teacher.model, teacher.weight, teacher.path = make(1), WEIGHT, "it.pt"
    losses = []
    for seed in (1, 2):
        student, loss_of = make(seed).train(), criterion(name, task)
        own = loss_of(student, inputs)[0]
        teacher.teach(student, loss_of)
        loss = loss_of(student, inputs)[0]
        loss.backward()
        assert all(
            one.grad.isfinite().all() for one in student.parameters() if one.grad is not None
        )
        losses.append((loss - (1 - WEIGHT) * own).item())
    assert losses[0] == pytest.approx(0, abs=1e-4)
    assert losses[1] > 0.01


def trained(folder, *more, **options):
    torch.manual_seed(5)
    model = build_model(seed=2, dropout=0.2, **options)
    trainer = make_trainer(model)
    train(trainer, 3)
    return trainer, torch.load(save(trainer, folder / "student.pt"), weights_only=False)


def test_a_weight_of_zero_is_the_training_without_a_teacher_to_the_bit(tmp_path):
    path = written(tmp_path, build_model())
    _, plain = trained(tmp_path)
    _, nothing = trained(tmp_path, teacher=path, teacher_weight=0.0)
    trainer, learned = trained(tmp_path, teacher=path, teacher_weight=0.5)
    for name, value in plain["model"].items():
        assert torch.equal(value, nothing["model"][name]), name
    assert any(not torch.equal(one, learned["model"][name]) for name, one in plain["model"].items())
    # The checkpoint has the student alone, and a teacher learns nothing
    assert learned["model"].keys() == plain["model"].keys()
    assert learned["criterion"] is None
    teacher = trainer.criterion.forward.func.__self__
    for name, value in build_model().state_dict().items():
        assert torch.equal(value, teacher.model.state_dict()[name]), name


def test_a_teacher_is_in_the_students_precision(tmp_path):
    student = build_model(seed=2).half().train()
    teacher = Teacher(written(tmp_path, build_model()), tiny_task(), 1.0)
    inputs = sample()["net_input"]
    each = teacher.divergence(student, (), inputs, student(**inputs))
    assert next(teacher.model.parameters()).dtype == torch.float16
    assert each.dtype == torch.float32
    wide = teacher.divergence(student.float(), (), inputs, student(**inputs))
    torch.testing.assert_close(each, wide, atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        ("entmax_transformer", {"adaptive_softmax_cutoff": "5,9"}, "neither may have --adaptive"),
        (
            "entmax_copy_transformer",
            {"copy_heads": "2"},
            "both models have to copy words",
        ),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(arch, options, message, tmp_path):
    path = written(tmp_path, build_model())
    with pytest.raises(ValueError, match=f"--teacher {path}: .*{message}"):
        Teacher(path, tiny_task(), 0.5).teach(build_model(arch, **options), None)


def test_wrong_values_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"--teacher: there is no checkpoint .*no\.pt"):
        make_trainer(build_model(teacher=str(tmp_path / "no.pt")))
    with pytest.raises(ValueError, match="--teacher-weight: the weight must be from 0 to 1, not 2"):
        build_model(teacher_weight=2)
    assert Teaching().teacher is None
