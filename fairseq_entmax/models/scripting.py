"""Models of fairseq's as TorchScript takes them, where fairseq's own class is not enough."""

from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035 - what every TorchScript reads

import torch
from fairseq.models.transformer_lm import TransformerLanguageModel
from torch import Tensor


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
        """Scores of the next word at each position.

        Args:
            src_tokens: ``(batch, tokens)``.
            src_lengths: ``(batch,)``; not looked at.
            incremental_state: fairseq's cache, for one word at a time.

        Returns:
            ``(batch, tokens, words)``, and a dictionary as fairseq's.
        """
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
