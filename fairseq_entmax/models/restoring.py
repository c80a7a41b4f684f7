"""Loading a checkpoint of the same model, of its stock counterpart, or of a model with fewer parts.

What the checkpoint lacks starts as in a new model, and is logged. Weights that do not fit raise
a ValueError of one sentence.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import Any

from fairseq import checkpoint_utils
from torch import Tensor, nn

from fairseq_entmax import command_errors
from fairseq_entmax.attention import Gate, MultiheadAttention
from fairseq_entmax.attentions import Place, weights_of_attentions
from fairseq_entmax.mappings.factor import RATIO
from fairseq_entmax.models.feature import ModelOptions

logger = logging.getLogger(__name__)


class Restoring(nn.Module):
    """Mixin for tolerant loading; list it before fairseq's model among the bases of a class."""

    attention_options: ModelOptions

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load a checkpoint of this model or of its stock counterpart.

        What the checkpoint lacks keeps its initial value, and is logged.
        """
        if _places(state_dict) == _places(self.state_dict()):
            # fairseq would apply --encoder-layers-to-keep to the remaining layers once more
            model_cfg = args = None
        elif model_cfg is not None:
            state_dict, model_cfg = _remaining_layers(state_dict, model_cfg), None
        if getattr(self, "output_rise", None) is None:
            state_dict.pop("output_rise.updates", None)
        with command_errors.stopping_command():
            self._check_state(state_dict)
            try:
                result = super().load_state_dict(state_dict, strict, model_cfg, args)  # type: ignore[call-arg]
            except RuntimeError as error:
                raise _does_not_fit(error) from error
        self._log_missing()
        return result

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Like fairseq's, but adds no output projection to a decoder with an adaptive softmax.

        fairseq adds one if embeddings are shared, and could not load such a checkpoint again.
        """
        super().upgrade_state_dict_named(state_dict, name)  # type: ignore[misc]
        if getattr(getattr(self, "decoder", None), "adaptive_softmax", None) is not None:
            state_dict.pop("decoder.output_projection.weight", None)

    def _check_state(self, state_dict: dict[str, Any]) -> None:
        no_numbers = [
            name
            for name, value in state_dict.items()
            if ".mapping." in name and isinstance(value, Tensor) and value.isnan().any()
        ]
        if no_numbers:
            raise ValueError(
                f"the checkpoint has NaN for {', '.join(no_numbers)}: its training "
                f"has diverged; use an earlier checkpoint"
            )
        gated = {name.rpartition(".gate.")[0] for name in state_dict if ".gate." in name}
        ours = (name for name, module in self.named_modules() if isinstance(module, Gate))
        gated.difference_update(name.removesuffix(".gate") for name in ours)
        if gated:
            raise ValueError(
                f"the checkpoint has head gates in {', '.join(sorted(gated))}, but the model "
                f"has none there: give the --head-gates that it was trained with, or remove the "
                f"closed heads from it with 'fairseq-entmax prune'"
            )

    def _log_missing(self) -> None:
        modules = list(self.modules())
        gates = [module for module in modules if isinstance(module, Gate)]
        new_gates = [name for gate in gates for name in gate.filled if name.endswith("weight")]
        if new_gates:
            logger.warning(
                "the checkpoint has no head gates for %s; they start at --gate-init %s",
                ", ".join(name.removesuffix(".gate.weight") for name in new_gates),
                self.attention_options.features["gates"].gate_init,
            )
        attentions = [module for module in modules if isinstance(module, MultiheadAttention)]
        filled = [name for attention in attentions for name in attention.filled]
        if filled:
            logger.warning(
                "the checkpoint has no value for %d learned parameters; they start as in a new model: %s",
                *(len(filled), ", ".join(filled)),
            )


def _does_not_fit(error: RuntimeError) -> ValueError:
    """Turn torch's error about a checkpoint's weights into one sentence with the remedy."""
    message = " ".join(str(error).split())
    others = re.findall(r'"([^"]+\.mapping\.[^"]+)"', message)
    others = [name for name in others if not name.endswith(f".{RATIO}")]
    has_other_layers = re.search(r"(Missing|Unexpected) key.*\.fc1\.weight", message)
    if others and "Unexpected key" in message and not has_other_layers:
        return ValueError(
            f"the checkpoint has parameters {', '.join(others[:2])}{' …' * (len(others) > 2)} of other mappings than the model's: "
            f"give the mapping options that it was trained with, which 'fairseq-entmax alpha CHECKPOINT' shows"
        )
    if "size mismatch" in message and "_proj.weight" in message and not has_other_layers:
        return ValueError(
            "the checkpoint has numbers of heads, or a width, that differ from the model's: give the "
            f"options that 'fairseq-entmax prune CHECKPOINT --print-config' prints, and for a new training another --save-dir ({message:.600})"
        )
    return ValueError(
        f"the checkpoint's weights do not fit the model: give the options that it was trained with, data "
        f"with its dictionaries, or another checkpoint, and for a new training another --save-dir ({message:.600})"
    )


def _remaining_layers(state_dict: dict[str, Any], cfg: Any) -> dict[str, Any]:
    """Drop the layers that ``--encoder-layers-to-keep`` or ``--decoder-layers-to-keep`` leaves out.

    If only one of encoder and decoder has such an option, fairseq drops all layers of the other.
    """
    is_cut = {side: getattr(cfg, f"{side}_layers_to_keep", None) for side in ("encoder", "decoder")}
    if not any(is_cut.values()):
        return state_dict
    cut = checkpoint_utils.prune_state_dict(state_dict, cfg)
    whole = (item for item in state_dict.items() if not is_cut.get(item[0].partition(".")[0], True))
    return {**cut, **dict(whole)}


def _places(state_dict: Collection[str]) -> set[Place]:
    """The attentions that have weights in a state dict."""
    return {weight.place for weight in weights_of_attentions(state_dict).values()}
