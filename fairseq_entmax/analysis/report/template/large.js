/* One head of each model, large, with the tokens at both axes. */

const LABEL_FONT = "system-ui, sans-serif";
const CELL = { smallest: 12, largest: 28 };
const LABEL_LIMIT = 110;
const MARGIN = 6;

/* A panel has selects of its own for its layer and head; `choose` hears of them. */
function largePanel(model, choose, point) {
  const layer = element("select");
  const head = element("select");
  const canvas = element("canvas", { tabindex: "0", role: "application", "aria-roledescription": "attention map" });
  const panel = {
    model, layer, head, canvas,
    roles: element("p", { class: "roles" }),
    base: null,
    map: null,
  };
  panel.element = element(
    "div",
    { class: "panel" },
    element("h3", {}, ...breakable(report.models[model].name)),
    element("div", { class: "controls" }, element("label", {}, "Layer ", layer), element("label", {}, "Head ", head)),
    panel.roles,
    element("div", { class: "scroll" }, canvas),
  );
  layer.addEventListener("change", () => choose(model, Number(layer.value), 0));
  head.addEventListener("change", () => choose(model, Number(layer.value), Number(head.value)));
  canvas.addEventListener("pointermove", (event) => pointAt(panel, event, point));
  canvas.addEventListener("pointerdown", (event) => pointAt(panel, event, point));
  canvas.addEventListener("pointerleave", hideTooltip);
  canvas.addEventListener("keydown", (event) => moveCursor(panel, event, point));
  return panel;
}

/* Shows a head and its map, or that the model has no such head. */
function showInPanel(panel, head, map, attention) {
  const layers = layersOf(panel.model, attention).filter((layer) => layer.heads.length);
  const here = layers.find((layer) => layer.layer === head?.layer);
  const choices = (items) => items.map((item) => [item, item]);
  fillSelect(panel.layer, choices(layers.map((layer) => layer.layer)), head?.layer ?? "");
  fillSelect(panel.head, choices((here?.heads ?? []).map((other) => other.head)), head?.head ?? "");
  panel.roles.textContent = head ? head.roles.join("; ") || NO_ROLE : "this model has no such head";
  panel.map = map;
  panel.shown = head;
  panel.canvas.hidden = !map;
  if (map) {
    const use = "Arrow keys move from weight to weight.";
    panel.canvas.setAttribute("aria-label", `Attention map of ${headTitle(head)}. ${use}`);
    drawPanel(panel);
  }
}

function drawPanel(panel) {
  const { map, canvas } = panel;
  const space = canvas.parentElement.clientWidth;
  panel.layout = layoutOf(map, space);
  const { left, top, cell } = panel.layout;
  const [width, height] = [left + map.keys * cell + MARGIN, top + map.queries * cell + MARGIN];
  panel.base = element("canvas");
  const context = sharpContext(panel.base, width, height);
  paintCells(context, map, left, top, cell);
  if (map.groups) {
    paintSegments(context, map, left, top, cell);
  }
  context.fillStyle = getComputedStyle(panel.element).color;
  map.rows.forEach((_, query) => drawRowLabel(context, panel, query));
  map.columns.forEach((_, key) => drawColumnLabel(context, panel, key));
  panel.context = sharpContext(canvas, width, height);
  Object.assign(canvas.dataset, { left, top, cell });
  drawCursor(panel, null);
}

/* Cells as large as the panel is wide, but never too small to point at. */
function layoutOf(map, space) {
  const context = element("canvas").getContext("2d");
  context.font = `12px ${LABEL_FONT}`;
  const widest = (tokens) =>
    Math.ceil(Math.min(LABEL_LIMIT, Math.max(...tokens.map((token) => context.measureText(token).width))));
  const left = widest(map.rows) + 2 * MARGIN;
  const top = widest(map.columns) + 2 * MARGIN;
  const fitting = Math.floor((space - left - MARGIN) / map.keys);
  return { left, top, cell: Math.max(CELL.smallest, Math.min(CELL.largest, fitting)) };
}

function labelFont(cell, isMarked) {
  return `${isMarked ? "bold " : ""}${Math.min(12, cell - 1)}px ${LABEL_FONT}`;
}

function drawRowLabel(context, { map, layout }, query, isMarked = false) {
  const { left, top, cell } = layout;
  context.font = labelFont(cell, isMarked);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const token = fitted(context, map.rows[query], LABEL_LIMIT);
  context.fillText(token, left - MARGIN, top + (query + 0.5) * cell);
}

function drawColumnLabel(context, { map, layout }, key, isMarked = false) {
  const { left, top, cell } = layout;
  context.save();
  context.translate(left + (key + 0.5) * cell, top - MARGIN);
  context.rotate(-Math.PI / 2);
  context.font = labelFont(cell, isMarked);
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(fitted(context, map.columns[key], LABEL_LIMIT), 0, 0);
  context.restore();
}

/* The map with the row and the column of the cursor framed, and their tokens in bold. */
function drawCursor(panel, cursor) {
  const { map, context, base, layout } = panel;
  const { left, top, cell } = layout;
  const [width, height] = [map.keys * cell, map.queries * cell];
  const colours = getComputedStyle(panel.element);
  context.clearRect(0, 0, left + width + MARGIN, top + height + MARGIN);
  context.drawImage(base, 0, 0, left + width + MARGIN, top + height + MARGIN);
  if (!cursor || cursor.query >= map.queries || cursor.key >= map.keys) {
    return;
  }
  const [x, y] = [left + cursor.key * cell, top + cursor.query * cell];
  context.fillStyle = colours.backgroundColor;
  context.fillRect(0, y, left - 1, cell);
  context.fillRect(x, 0, cell, top - 1);
  context.fillStyle = colours.color;
  drawRowLabel(context, panel, cursor.query, true);
  drawColumnLabel(context, panel, cursor.key, true);
  context.strokeStyle = colours.outlineColor;
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, y + 0.5, width - 1, cell - 1);
  context.strokeRect(x + 0.5, top + 0.5, cell - 1, height - 1);
  context.lineWidth = 3;
  const segments = groupAt(map, cursor.query, cursor.key);
  const framed = segments.length ? segments : [{ from: cursor.key, to: cursor.key + 1 }];
  framed.forEach(({ from, to }) => context.strokeRect(left + from * cell, y, (to - from) * cell, cell));
}

function pointAt(panel, event, point) {
  const { left, top, cell } = panel.layout;
  const box = panel.canvas.getBoundingClientRect();
  const key = Math.floor((event.clientX - box.left - left) / cell);
  const query = Math.floor((event.clientY - box.top - top) / cell);
  if (query < 0 || key < 0 || query >= panel.map.queries || key >= panel.map.keys) {
    hideTooltip();
    return;
  }
  point({ query, key });
  // A finger would hide it: what it says stands above the maps, too
  if (event.pointerType === "mouse") {
    const weight = weightText(panel.map, query, key);
    const together = groupText(panel.map, query, key);
    const text = `${panel.map.rows[query]} → ${panel.map.columns[key]}: ${weight}`;
    showTooltip(together ? `${text} – as each of ${together}` : text, event.clientX, event.clientY);
  }
}

function moveCursor(panel, event, point) {
  const step = ARROWS[event.key];
  if (!step) {
    return;
  }
  event.preventDefault();
  const { queries, keys } = panel.map;
  const cursor = maps.cursor ?? { query: 0, key: -step[1] };
  const within = (value, size) => Math.max(0, Math.min(size - 1, value));
  point({ query: within(cursor.query + step[0], queries), key: within(cursor.key + step[1], keys) });
}
