"""What a reader of the report does, and sees."""

import re

import numpy as np

from tests.analysis.report.synthetic import decode_weights

MARKUP = '<img src="https://example.org/x.png" onerror="throw Error(1)">'


def key(model, attention, layer, head):
    return f"{model}/{attention}/{layer}/{head}"


def cell(page, *place):
    return page.locator(f'#grids td[data-head="{key(*place)}"]')


def row(page, *place):
    return page.locator(f'#heads-table tr[data-head="{key(*place)}"]')


def head_of(analysis, model, attention, layer, head):
    entry = next(
        entry for entry in analysis["models"][model]["attentions"]
        if (entry["attention"], entry["layer"]) == (attention, layer)
    )  # fmt: skip
    return entry["heads"][head]


def weights_of(analysis, sentence, model, attention, layer, head):
    item = next(
        item for item in analysis["maps"][sentence]["models"][model]
        if (item["attention"], item["layer"]) == (attention, layer)
    )  # fmt: skip
    return decode_weights(item)[head]


def select(page, *place):
    """Choose a head in the overview, and wait until its map is drawn."""
    cell(page, *place).click()
    wait_for_map(page, *place)


def wait_for_map(page, *place):
    page.wait_for_function(
        "key => document.getElementById('map-panels').dataset.shown?.endsWith(key)",
        arg=key(*place),
    )


def canvas_of(page, model):
    return page.locator("#map-panels .panel canvas").nth(model)


def point_at(page, model, query, key_place):
    """Move the mouse to a cell of a model's map."""
    canvas = canvas_of(page, model)
    canvas.scroll_into_view_if_needed()
    canvas.evaluate("c => c.scrollIntoView({block: 'center', behavior: 'instant'})")
    box = canvas.bounding_box()
    left, top, size = (float(canvas.get_attribute(f"data-{n}")) for n in ("left", "top", "cell"))
    page.mouse.move(
        box["x"] + left + (key_place + 0.5) * size, box["y"] + top + (query + 0.5) * size
    )


def shown_weight(page, model):
    return page.locator(f'#readout [data-model="{model}"] strong').inner_text()


def agrees(text, weight):
    """Whether what the page says of a weight is true of it."""
    if weight == 0:
        return text == "exactly 0"
    value, error = map(float, re.fullmatch(r"([\d.]+) ± ([\d.]+)", text).groups())
    return abs(value - weight) <= error <= np.sqrt(weight) / 255 + 0.0016


def luminance(page, locator):
    colour = locator.evaluate("e => getComputedStyle(e).backgroundColor")
    channels = np.array([int(part) for part in re.findall(r"\d+", colour)[:3]]) / 255
    return float(channels**2.2 @ [0.2126, 0.7152, 0.0722])


def draw_every_figure(page):
    charts = page.locator(".chart")
    for number in range(charts.count()):
        charts.nth(number).scroll_into_view_if_needed()
        page.wait_for_selector(f'.chart[data-figure="{number}"][data-drawn=true]')
    return charts.count()
