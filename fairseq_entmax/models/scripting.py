"""Models in TorchScript and ONNX.

Where fairseq's own class is not enough for TorchScript, there is one here.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.models.transformer_lm import TransformerLanguageModel
from torch import Tensor

from fairseq_entmax.attention.scripting import Scriptable, scriptable
from fairseq_entmax.criterions.sparse_output import SOFTMAX


class ForInference(Scriptable):
    """Of a model of this package; stands before fairseq's class among its bases."""

    def scriptable_form(self: Any) -> Any:
        """A model of fairseq's class for ``torch.jit.script`` and ONNX, for inference."""
        if self.output_alpha != SOFTMAX:
            raise ValueError(
                f"a model with --output-alpha {self.output_alpha:g} cannot be scripted or exported as a "
                f"whole: fairseq's scripted search ends in an assertion where words have probability "
                f"zero; script model.encoder and model.decoder, which gives the scores, or generate "
                f"with fairseq-generate"
            )
        model: Any = Scriptable.scriptable_form(self)
        # What is for training alone; a seed may be too large for TorchScript's numbers
        for name in ("attention_options", "monitor", "has_other_factors", "_seed", "_passes"):
            model.__dict__.pop(name, None)
        model._modules.pop("pruning_state", None)
        return model

    def prepare_for_onnx_export_(self: Any, **kwargs: Any) -> None:
        """Make the model, in place, one that ONNX takes; it cannot be trained any more."""
        self._modules.update(scriptable(self)._modules)
        super().prepare_for_onnx_export_(**kwargs)  # type: ignore[misc]


class ScriptableLanguageModel(TransformerLanguageModel):
    """fairseq's ``transformer_lm``, whose own ``forward`` takes arguments of any name."""

    # A set, which TorchScript does not have
    __jit_unused_properties__ = ("supported_targets",)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
    ) -> Tuple[Tensor, Dict[str, List[Optional[Tensor]]]]:
        """Scores of the next word ``(batch, tokens, words)``, and a dictionary as fairseq's."""
        return self.decoder(src_tokens, incremental_state=incremental_state)

    @torch.jit.export
    def get_normalized_probs(
        self,
        net_output: Tuple[Tensor, Optional[Dict[str, List[Optional[Tensor]]]]],
        log_probs: bool,
        sample: Optional[Dict[str, Tensor]] = None,
    ) -> Any:
        """Probabilities of words ``(batch, tokens, words)``, or their logarithms."""
        return self.get_normalized_probs_scriptable(net_output, log_probs, sample)
