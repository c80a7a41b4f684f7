"""Trainings of a recipe: options that follow from their length, and runs that go on."""

from tests.examples.dry_runs import Steps, asks, called


def train(steps: Steps, *options: object, name: str = "run") -> str:
    calls, _ = steps.once("train.sh", "--cpu", "--name", name, *options)
    return "".join(called(calls, "fairseq-train"))


def test_the_rise_and_the_learning_rate_follow_from_the_length(verses: Steps) -> None:
    decay, rise = "--total-num-update ", "--alpha-warmup-updates "
    one, three = (train(verses, "--epochs", n, "entmax").split(decay)[1] for n in (1, 3))
    updates = int(one.split()[0])
    assert int(three.split()[0]) == 3 * updates > 60
    asks(train(verses, "--updates", 40, "entmax"), f"{rise}20", f"{decay}40")
    # The other schedules in fairseq do not have the option
    for given in (["--lr-scheduler", "inverse_sqrt"], ["--lr-scheduler=inverse_sqrt"]):
        assert decay not in train(verses, "entmax", *given)
    trained = verses.out / "runs/run/checkpoints/checkpoint_best.pt"
    for option in ("--alpha-warmup-updates=0", f"--finetune-from-model={trained}"):
        assert rise not in train(verses, "entmax", option, name=option[2:7])


def test_a_training_goes_on_on_another_device_and_from_a_moved_model(verses: Steps) -> None:
    assert train(verses, "entmax", name="first")
    settings = verses.out / "runs/first/settings.txt"
    settings.write_text(settings.read_text().replace("device: cpu", "device: gpu"))
    assert not train(verses, "entmax", name="first")
    trained = verses.out / "runs/first/checkpoints/checkpoint_best.pt"
    assert train(verses, "entmax", "--teacher", trained)
    moved = trained.rename(verses.out / "moved.pt")
    assert not train(verses, "entmax", "--teacher", moved)
    moved.write_bytes(b"another model")
    assert train(verses, "entmax", "--teacher", moved)
