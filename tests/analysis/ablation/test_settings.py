"""What the scores of generated text depend on."""

from argparse import Namespace
from dataclasses import dataclass

from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf

from fairseq_entmax.analysis.ablation.settings import _search


@dataclass
class OtherSearch(TranslationConfig):
    length_penalty: str = "average"


def search(task, **options):
    config = {"generation": OmegaConf.structured(GenerationConfig(**options)), "task": task}
    return _search(Namespace(sampling=False), OmegaConf.create(config))


def test_of_fairseqs_task_only_what_is_not_at_its_default_and_the_beam():
    task = OmegaConf.structured(TranslationConfig(data="x", eval_bleu=True))
    assert search(task, lenpen=0.9) == {"beam": 5, "lenpen": 0.9}


def test_of_a_task_with_a_search_of_its_own_its_options_too():
    task = OmegaConf.structured(OtherSearch(data="x", length_penalty="wu"))
    assert search(task) == {"beam": 5, "length_penalty": "wu"}
