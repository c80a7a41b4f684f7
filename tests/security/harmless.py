"""A harmless checkpoint and its data."""

from collections import OrderedDict

from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import fairseq_entmax  # noqa: F401
from tests.support import TINY, binarise, random_sentences

LANGUAGES = ("--source-lang=a", "--target-lang=b")


def write_data(folder):
    """Write binarised data of 20 words, in the languages a and b."""
    folder.mkdir(exist_ok=True)
    sentences = random_sentences([5, 9, 3, 7])
    words = "".join(f"w{number} 9\n" for number in range(20))
    (folder / "dict.txt").write_text(words, encoding="utf-8")  # for a language model
    for language in ("a", "b"):
        (folder / f"dict.{language}.txt").write_text(words, encoding="utf-8")
        for split in ("train", "valid", "test"):
            binarise(folder / f"{split}.a-b.{language}", sentences)


def harmless(data, *others):
    """A checkpoint of an untrained model, as fairseq's trainer saves it."""
    parser = options.get_training_parser()
    given = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    arguments = [str(data), "--arch=entmax_transformer", *LANGUAGES, *given, *others]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "criterion": OrderedDict(),
        "optimizer_history": [
            {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
            | {"lr_scheduler_state": {"best": None}, "num_updates": 3}
        ],
        "task_state": {},
        "extra_state": {"metrics": [], "previous_training_time": 0.0},
        "last_optimizer_state": None,
    }
