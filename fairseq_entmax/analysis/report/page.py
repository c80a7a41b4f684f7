"""The report as one HTML file that opens without a network."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import fairseq_entmax
from fairseq_entmax.analysis.report.charts import alt, vl_convert
from fairseq_entmax.analysis.report.figures_grids import page_charts
from fairseq_entmax.analysis.report.payload import groups_block, page_data, weights_block

TEMPLATE = "template"
# Joined in this order into one script, so that names are defined before they are used
SCRIPTS = (
    *("data.js", "colours.js", "elements.js", "charts.js", "summary.js", "evidence.js"),
    *("overview.js", "details.js", "heads.js", "weights.js", "map.js", "maps.js"),
    "main.js",
)


def render_page(analysis: dict[str, Any], figures: Sequence[Any] = ()) -> str:
    """Render the whole page: text, style, script, data and the library that draws the charts.

    The same analysis gives the same page. Its content security policy forbids the browser to load
    anything, to send forms, and to run any script except the page's own two."""
    library = _library()
    data = analysis["data"]
    names = ", ".join(model["name"] for model in analysis["models"])
    languages = [data[name] for name in ("source_lang", "target_lang") if data[name]]
    subset = "sentences of your own" if data.get("own") else data["subset"]
    what = " ".join(["-".join(languages)] * bool(languages) + [subset])
    script = "\n".join(_template(name) for name in SCRIPTS)
    parts = {
        "hashes": " ".join(_hash(text) for text in (script, library)),
        "title": html.escape(f"Attention heads of {names} on {what}"),
        "version": html.escape(fairseq_entmax.__version__),
        "style": _template("style.css"),
        "data": _json(page_data(analysis, figures, page_charts(analysis))),
        "weights": "\n".join(
            f'<script type="text/plain" id="{name}-{number}">{block}</script>'
            for number, entry in enumerate(analysis["maps"])
            for name, block in (("weights", weights_block(entry)), ("groups", groups_block(entry)))
            if block is not None
        ),
        "library": library,
        "script": script,
    }
    # One pass, so that inserted text is not searched for placeholders
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _template("page.html"))


def _template(name: str) -> str:
    return (resources.files(__package__) / TEMPLATE / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The hash of a script's text, in the form of a content security policy."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


@functools.cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    # The release of Vega-Lite that Altair's figures are written for, such as "v6.4.1"
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    # The end tag can only be in strings and regular expressions, where the escape means the same.
    # A browser reads every line end as \n, and hashes what it reads
    return re.sub(r"\r\n?", r"\n", bundle).replace("</script", "<\\/script")
