"""What a reader of the report does and sees."""

import re

import numpy as np

from fairseq_entmax.analysis.document.maps import decoded
from fairseq_entmax.analysis.report.page import render_page

MARKUP = '<img src="https://example.org/x.png" onerror="throw Error(1)">'


def write(folder, analysis, figures=()):
    """Write the report of an analysis to a folder, and return its path."""
    path = folder / "report.html"
    path.write_text(render_page(analysis, figures), encoding="utf-8")
    return path


def key(model, attention, layer, head):
    return f"{model}/{attention}/{layer}/{head}"


def row(page, *place):
    return page.locator(f'#heads-table tr[data-head="{key(*place)}"]')


def layer_of(analysis, model=2, attention="encoder-self", layer=0):
    """The entry of an attention and layer of a model."""
    (entry,) = (
        entry
        for entry in analysis["models"][model]["attentions"]
        if (entry["attention"], entry["layer"]) == (attention, layer)
    )
    return entry


def head_of(analysis, model, attention, layer, head):
    return layer_of(analysis, model, attention, layer)["heads"][head]


def weights_of(analysis, sentence, model, attention, layer, head):
    item = next(
        item for item in analysis["maps"][sentence]["models"][model]
        if (item["attention"], item["layer"]) == (attention, layer)
    )  # fmt: skip
    return decoded(item)[head].astype("f4")


def cell_texts(page):
    """The texts in the cells of the overview, by the heads' keys."""
    texts = page.evaluate(
        """() => [...document.querySelectorAll("#grids text")]
             .map((one) => [one.__data__?.datum, one.textContent])
             .filter(([datum]) => datum?.key !== undefined)
             .map(([datum, text]) => [datum.key, text])"""
    )
    return dict(texts)


def choose_measure(page, name):
    page.select_option("#measure", name)
    page.wait_for_selector(f'#grids[data-measure="{name}"]')


def select(page, *place):
    """Select a head in the list, and wait until its map is drawn."""
    row(page, *place).click()
    wait_for_map(page, *place)


def wait_for_map(page, *place):
    page.wait_for_function(
        "key => document.getElementById('map-panels').dataset.shown?.endsWith(key)", arg=key(*place)
    )


def map_of(page, panel):
    return page.locator("#map-panels svg.map").nth(panel)


def layout_of(page, panel):
    shown = map_of(page, panel)
    return [float(shown.get_attribute(f"data-{name}")) for name in ("left", "top", "cell")]


def point_at(page, panel, query, place):
    """Move the mouse to a cell of a model's map."""
    shown = map_of(page, panel)
    shown.evaluate("c => c.scrollIntoView({block: 'center', behavior: 'instant'})")
    box = shown.bounding_box()
    left, top, size = layout_of(page, panel)
    page.mouse.move(box["x"] + left + (place + 0.5) * size, box["y"] + top + (query + 0.5) * size)


def zeros_of(page, panel, shape):
    """A mask of the weights that are hatched in a map."""
    _, _, cell = layout_of(page, panel)
    hatched = np.zeros(shape, bool)
    path = map_of(page, panel).locator("path.zeros").get_attribute("d")
    for x, y, width in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v[\d.]+h-[\d.]+z", path):
        begin, query, size = (round(float(one) / cell) for one in (x, y, width))
        hatched[query, begin : begin + size] = True
    return hatched


def shades_of(page, panel):
    """The pixels of a map's image, ``(queries, keys, 4)``."""
    height, width, *shades = map_of(page, panel).evaluate(
        """async (svg) => {
          const image = new Image();
          image.src = svg.querySelector("image").getAttribute("href");
          await image.decode();
          const canvas = document.createElement("canvas");
          const [width, height] = [image.naturalWidth, image.naturalHeight];
          Object.assign(canvas, { width, height });
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          return [height, width, ...context.getImageData(0, 0, width, height).data];
        }"""
    )
    return np.array(shades).reshape(height, width, 4)


def shown_weight(page, model):
    return page.locator(f'#readout [data-model="{model}"] strong').inner_text()


def agrees(text, weight):
    """Whether the weight that the page shows is correct within the stated error."""
    if weight == 0:
        return text == "exactly 0"
    value, error = map(float, re.fullmatch(r"([\d.]+) ± ([\d.]+)", text).groups())
    return abs(value - weight) <= error <= np.sqrt(weight) / 255 + 0.0016


def draw_every_figure(page):
    """Scroll to each figure, and return their number."""
    boxes = page.locator("#figure-list .chart")
    for number in range(boxes.count()):
        boxes.nth(number).scroll_into_view_if_needed()
        boxes.nth(number).locator("svg.marks").wait_for()
    return boxes.count()
