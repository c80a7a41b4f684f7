"""fairseq has hydra compose its settings, which takes longer than most trainings of the tests."""

import copy
from typing import Any


def keep_what_is_parsed() -> None:
    """From here on, hydra parses each word once, and does not copy the store that it only reads."""
    from hydra._internal import config_repository
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parse, kept = OverridesParser.parse_rule, {}

    def parse_once(self: Any, *words: str) -> Any:
        if words not in kept:
            kept[words] = parse(self, *words)
        return copy.copy(kept[words])

    def share(self: Any, delegate: Any) -> None:
        self.delegate, self.cache = copy.copy(delegate), {}

    OverridesParser.parse_rule = parse_once
    config_repository.CachingConfigRepository.__init__ = share
