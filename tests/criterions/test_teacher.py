"""Training with a teacher: the loss matches a plain computation, and nothing else changes."""

import math
from functools import partial

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.logging import metrics

from fairseq_entmax.criterions.teacher import Teacher
from tests.criterions.test_copying import marked_sample
from tests.language_models import build_text_model
from tests.pruning.test_surgery import state_of
from tests.support import (
    MARKERS,
    build_model,
    build_roberta,
    classification_task,
    marked_task,
    sample,
    tiny_task,
)
from tests.training import make_trainer, save, train

WEIGHT = 0.3


def written(folder, model, arch="entmax_transformer", **settings):
    """The path of the model's checkpoint, which fairseq can load."""
    state = state_of(model, arch)
    state["optimizer_history"][0] |= {"optimizer_name": "adam", "lr_scheduler_state": {}}
    vars(state["cfg"]["model"]).update(settings)
    path = str(folder / f"teacher-{arch}.pt")
    torch.save({**state, "args": state["cfg"]["model"], "cfg": None}, path)
    return path


def criterion(name, task=None):
    kind = CRITERION_DATACLASS_REGISTRY[name]
    given = {"sentence_avg": False, "max_update": 0, "label_smoothing": 0.1, "l0_weight": 0.2}
    given["ignore_prefix_size"] = 2
    options = kind(**{key: one for key, one in given.items() if key in kind.__dataclass_fields__})
    return CRITERION_REGISTRY[name].build_criterion(options, task or tiny_task())


def log_probs(model, inputs):
    with torch.no_grad():
        return model(**inputs["net_input"])[0].double().log_softmax(-1)


@pytest.mark.parametrize(
    "name",
    ["cross_entropy", "label_smoothed_cross_entropy", "label_smoothed_cross_entropy_with_head_l0"],
)
def test_the_loss_mixes_the_criterion_with_each_words_divergence(name, tmp_path):
    arch = "transformer" if name == "cross_entropy" else "entmax_transformer"
    # The student is pruned, and has sparse attention and gates
    student = build_model(seed=2, cross_attn_heads="1,3", head_gates="cross").train()
    for gate in student.head_gates()["cross"].values():
        gate.decide(torch.ones(gate.num_heads))
    plain, loss_of, inputs = criterion(name), criterion(name), sample()
    teacher = Teacher(written(tmp_path, build_model(arch), arch), tiny_task(), WEIGHT)
    teacher.teach(student, loss_of)
    expected, size, own = plain(student, inputs)
    wanted, found = log_probs(teacher.model, inputs), log_probs(student, inputs)
    each = (wanted.exp() * (wanted - found)).sum(-1)
    is_learned = inputs["target"] != tiny_task().target_dictionary.pad()
    is_learned[:, : 0 if name == "cross_entropy" else 2] = False
    divergence = each[is_learned].sum()
    penalty = own.get("l0_penalty", 0.0)
    expected = (1 - WEIGHT) * (expected - penalty) + penalty + WEIGHT * divergence
    with metrics.aggregate(new_root=True) as meters:
        loss, same_size, logged = loss_of(student, inputs)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert same_size == size
    shown = divergence.item() / size / math.log(2)
    assert meters["teacher_loss"].avg == pytest.approx(shown, rel=1e-4)
    assert {key: float(one) for key, one in logged.items()} == {k: float(v) for k, v in own.items()}
    # In validation the loss is bitwise the criterion's
    assert torch.equal(*(one(student.eval(), inputs)[0] for one in (plain, loss_of)))


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_a_sparse_output_also_learns_words_outside_its_support(alpha, tmp_path):
    student = build_model(seed=2, output_alpha=1.5).train()
    with torch.no_grad():
        student.decoder.output_projection.weight.mul_(8)
    path = written(tmp_path, build_model(output_alpha=alpha), output_alpha=alpha)
    teacher, inputs = Teacher(path, tiny_task(), 1.0), sample()
    scores = student(**inputs["net_input"])[0].detach().requires_grad_()
    teacher.divergence(student, (), inputs["net_input"], (scores, None)).sum().backward()
    probs = student.get_normalized_probs((scores.detach(), None), False)
    assert (probs == 0).any()
    # The gradient is p - q
    output = teacher.model(**inputs["net_input"])
    wanted = teacher.model.get_normalized_probs(output, False)
    assert (wanted == 0).any() == (alpha > 1)
    torch.testing.assert_close(scores.grad, probs - wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["copy_cross_entropy", "cross_entropy", "sentence_prediction"])
def test_a_model_learns_nothing_from_a_teacher_equal_to_itself(name):
    task, inputs = None, sample()
    tokens = inputs["net_input"]["prev_output_tokens"]
    if name == "copy_cross_entropy":
        # Markers that the source lacks have probability zero
        task, inputs, options = marked_task(), marked_sample(), {"source_position_markers": MARKERS}
        make = partial(build_model, "entmax_copy_transformer", task=task, **options)
    elif name == "cross_entropy":
        make = build_text_model
        inputs["net_input"] = {"src_tokens": tokens}
    else:
        task = classification_task()
        make = lambda seed: build_roberta(seed=seed, attention_dropout=0.0)  # noqa: E731
        inputs["net_input"] = {"src_tokens": tokens, "src_lengths": torch.tensor([8, 6, 3])}
        inputs["target"] = torch.tensor([[0], [1], [2]])
    teacher = object.__new__(Teacher)
    teacher.model, teacher.weight, teacher.path = make(seed=1), WEIGHT, "it.pt"
    learned = []
    for seed in (1, 2):
        student, loss_of = make(seed=seed).train(), criterion(name, task)
        own = loss_of(student, inputs)[0]
        teacher.teach(student, loss_of)
        loss = loss_of(student, inputs)[0]
        loss.backward()
        assert all(p.grad.isfinite().all() for p in student.parameters() if p.grad is not None)
        learned.append((loss - (1 - WEIGHT) * own).item())
    assert learned[0] == pytest.approx(0, abs=1e-4)
    assert learned[1] > 0.01


def test_a_teacher_of_weight_zero_changes_nothing_and_a_teacher_stays_fixed(tmp_path):
    path, ends = written(tmp_path, build_model()), []
    for options in ({}, {"teacher": path, "teacher_weight": 0}, {"teacher": path}):
        trainer = make_trainer(build_model(seed=2, dropout=0.2, **options))
        torch.manual_seed(5)
        train(trainer, 3)
        ends.append(torch.load(save(trainer, tmp_path / "student.pt")))
    plain, without, learned = (end["model"] for end in ends)
    assert all(torch.equal(value, without[name]) for name, value in plain.items())
    assert any(not torch.equal(value, learned[name]) for name, value in plain.items())
    # The checkpoint contains only the student
    assert learned.keys() == plain.keys()
    assert ends[2]["criterion"] is None
    teacher, fresh = trainer.criterion.forward.func.__self__.model, build_model().state_dict()
    assert not teacher.training
    assert all(torch.equal(value, teacher.state_dict()[name]) for name, value in fresh.items())


def test_a_teacher_leaves_the_students_task_and_folder_alone(tmp_path, monkeypatch):
    of_training = {"save_dir": "checkpoints", "cross_attn_heads": "4,4"}
    path, task = written(tmp_path, build_model(), **of_training), tiny_task()
    task.sequence_generator = "the student's"
    # A pruned student is trained in the folder that trained the teacher
    (tmp_path / "checkpoints").mkdir()
    heads = {"cross_attn_heads": "1,3"}
    student = state_of(build_model(**heads), **heads)
    torch.save(student, tmp_path / "checkpoints/checkpoint_last.pt")
    monkeypatch.chdir(tmp_path)
    state = torch.random.get_rng_state()
    teacher = Teacher(path, task, 0.5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert teacher.model.attention_options.heads["cross"] == [4, 4]
    assert teacher.model.monitor is None
    assert task.sequence_generator == "the student's"


def test_running_a_batch_twice_doubles_the_teachers_loss(tmp_path):
    teacher = Teacher(written(tmp_path, build_model()), tiny_task(), 1.0)
    student, inputs = build_model(seed=2).train(), sample()
    twice = {key: torch.cat([one, one]) for key, one in inputs["net_input"].items()}
    losses = []
    for net_input in (inputs["net_input"], twice):
        ask = type("Asks", (), {"padding_idx": 1})()
        ask.forward = lambda model, *_, given=net_input, **__: (model(**given)[0].sum(), 1, {})
        teacher.teach(student, ask)
        losses.append(ask.forward(student, inputs)[0].item())
    assert losses[1] == pytest.approx(2 * losses[0], rel=1e-5)


def test_a_teacher_takes_the_students_precision(tmp_path):
    teacher = Teacher(written(tmp_path, build_model()), tiny_task(), 1.0)
    inputs, student = sample()["net_input"], build_model(seed=2).half()
    half = teacher.divergence(student, (), inputs, student(**inputs))
    assert next(teacher.model.parameters()).dtype == torch.float16
    full = teacher.divergence(student.float(), (), inputs, student(**inputs))
    torch.testing.assert_close(half, full, atol=0.02, rtol=0)


@pytest.mark.parametrize("arch", ["transformer", "entmax_transformer"])
def test_an_error_in_loading_a_teacher_names_it(arch, tmp_path, stopped):
    state = torch.load(written(tmp_path, build_model(arch), arch))
    for name, value in state["model"].items():
        if "embed_tokens" in name:  # of another dictionary
            state["model"][name] = torch.cat([value, value])
    path = str(tmp_path / "other.pt")
    torch.save(state, path)
    _, error = stopped(lambda: make_trainer(build_model(teacher=path)))
    assert error.startswith(f"fairseq-train: error: --teacher {path} cannot be loaded: ")
    assert "size mismatch for encoder.embed_tokens.weight" in error
    assert error.count("\n") == 1


def test_an_unsuitable_teacher_is_refused(tmp_path):
    path, adaptive = written(tmp_path, build_model()), build_model(adaptive_softmax_cutoff="5,9")
    for student in (adaptive, build_model("entmax_copy_transformer"), build_text_model(seed=1)):
        with pytest.raises(ValueError, match=f"--teacher {path}: both models or neither must copy"):
            Teacher(path, tiny_task(), 0.5).teach(student, None)
    teacher = object.__new__(Teacher)
    loss_of = criterion("sentence_prediction", classification_task())
    teacher.model, teacher.path, loss_of.regression_target = build_roberta(), path, True
    with pytest.raises(ValueError, match=f"--teacher {path}: a regression predicts no probab"):
        teacher.teach(build_roberta(), loss_of)
    classifier = written(tmp_path, build_roberta(max_positions=512), "entmax_roberta")
    assert Teacher(classifier, classification_task(), 0.5).model
    with pytest.raises(ValueError, match="it has no classification head of this task"):
        Teacher(classifier, classification_task(4), 0.5)
    with pytest.raises(ValueError, match=r"--teacher no\.pt cannot be loaded: Model file not"):
        make_trainer(build_model(teacher="no.pt"))
    with pytest.raises(ValueError, match=r"--teacher kept/last\.pt is in the folder of --save-dir"):
        Teacher("kept/last.pt", tiny_task(), 0.5, save_dir="./kept/")
    with pytest.raises(ValueError, match="--teacher-weight: the weight must be from 0 to 1, not 2"):
        build_model(teacher_weight=2)
