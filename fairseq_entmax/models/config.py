"""The options of models of this package, for commands, architectures and YAML files.

Every model has the features in :data:`FEATURES`, with their options; some models have more.
"""

import shlex
from collections.abc import Collection, Iterable
from collections.abc import Mapping as Dictionary
from difflib import get_close_matches
from typing import Any

from fairseq_entmax.models.feature import Feature, option_name, options_of
from fairseq_entmax.models.features.attention_heads import AttentionHeads
from fairseq_entmax.models.features.gating import FrozenDecoder, Gates
from fairseq_entmax.models.features.sparse_output import SparseOutput
from fairseq_entmax.models.features.teaching import Teaching
from fairseq_entmax.models.head_record import HeadRecord

Features = tuple[type[Feature], ...]
# In the order in which they are attached to a model
FEATURES: Features = (AttentionHeads, SparseOutput, HeadRecord, Gates, FrozenDecoder, Teaching)
# An unknown name that contains one of these is refused as a misspelt option of this package
_WORDS_OF_OPTIONS = ("mapping", "alpha", "gate", "attn_heads", "tv_", "oscar", "copy_", "teacher")
# And one with one of these as an option of a criterion
_OF_CRITERIONS = ("target_head", "decide_head", "l0_", "loss_alpha", "copy_loss")


def defaults_of(features: Features) -> dict[str, Any]:
    return {entry.name: entry.default for entry in options_of(features)}


def as_arguments(options: Dictionary[str, str]) -> str:
    """Options and their values as arguments of ``fairseq-train``, quoted for a shell."""
    return shlex.join(
        word for option, value in options.items() for word in (option_name(option), value)
    )


def add_arguments(parser: Any, features: Features = FEATURES) -> None:
    """Add the options to an argparse parser or group, as texts; architectures set defaults."""
    for entry in options_of(features):
        about, metavar = entry.metadata, entry.metadata["metavar"]
        settings = {"metavar": metavar} if metavar else {"action": "store_true"}
        help = about["help"]() if callable(about["help"]) else about["help"]
        parser.add_argument(option_name(entry.name), help=help + about["shown"], **settings)


def set_defaults(args: Any, features: Features = FEATURES) -> None:
    """Set options that were not given to their defaults, as fairseq's architectures do."""
    for option, default in defaults_of(features).items():
        if getattr(args, option, None) is None:
            setattr(args, option, default)


def flatten(settings: Any) -> None:
    """Move the parts of a structured configuration to the names that fairseq's architectures read."""
    for part in ("encoder", "decoder", "quant_noise"):
        if isinstance(group := getattr(settings, part, None), Dictionary):
            if part == "decoder" and "embed_dim" in group:  # as in fairseq's dataclass
                group = {**dict.fromkeys(("input_dim", "output_dim"), group["embed_dim"]), **group}
            for name, value in group.items():
                setattr(settings, f"{part}_{name}", value)
            delattr(settings, part)


def refuse_unknown(
    names: Iterable[Any], known: Collection[str], features: Features = FEATURES
) -> None:
    """Raise ValueError for unknown names in a YAML file that look like options of this package.

    fairseq ignores names that it does not know, so the experiment would not be the intended one.
    """
    allowed = list(defaults_of(features))
    for name in map(str, names):
        like = get_close_matches(name, known, 1, 0.9) or get_close_matches(name, allowed, 1, 0.8)
        of_criterion = any(word in name for word in _OF_CRITERIONS)
        looks_ours = like or of_criterion or any(word in name for word in _WORDS_OF_OPTIONS)
        if name not in known and looks_ours:
            meant = "those of a criterion belong to criterion. " if of_criterion else ""
            meant = f"did you mean {like[0]}? " if like else meant
            raise ValueError(
                f"model.{name} is not an option of this model: {meant}This package's own are {', '.join(allowed)}"
            )
