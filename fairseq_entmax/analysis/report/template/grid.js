/* The overview: layers by heads, coloured by one measure. */

const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const overview = { measure: report.measure, cells: new Map() };

function setUpOverview() {
  const select = byId("measure");
  fillMeasures(select);
  select.addEventListener("change", () => {
    overview.measure = select.value;
    colourOverview();
  });
  buildGrids();
  colourOverview();
  onTheme(colourOverview);
  onSelect(markSelectedCell);
}

/* Those that are one of many come below the others, under what they have in common. */
function fillMeasures(select) {
  const options = (measures) => measures.map(({ name, title }) => [name, title]);
  fillSelect(select, options(loneMeasures), overview.measure);
  const groups = new Set(report.measures.map(({ group }) => group).filter(Boolean));
  for (const group of groups) {
    const place = element("optgroup", { label: group });
    fillSelect(place, options(report.measures.filter((measure) => measure.group === group)));
    select.append(place);
  }
  select.value = overview.measure;
}

/* With several models they stand side by side, attention by attention. */
function buildGrids() {
  const groups = attentions.map((attention) => {
    const grids = report.models.map((_, model) => gridCard(model, attention));
    return { attention, grids };
  });
  const place = byId("grids");
  if (report.models.length === 1) {
    place.append(cards(groups.flatMap(({ grids }) => grids)));
    return;
  }
  for (const { attention, grids } of groups) {
    place.append(element("h3", {}, ATTENTION_TITLES[attention]), cards(grids));
  }
}

function cards(grids) {
  const made = element("div", { class: "cards" }, ...grids);
  const widest = Math.max(...attentions.map(widestLayer));
  made.style.setProperty("--card", `${3 + 2.3 * widest}rem`);
  return made;
}

/* The most heads that a layer of this attention has in any model. */
function widestLayer(attention) {
  const layers = report.layers.filter((layer) => layer.attention === attention);
  return Math.max(1, ...layers.map((layer) => layer.heads.length));
}

function gridCard(model, attention) {
  const isOnly = report.models.length === 1;
  const title = isOnly ? ATTENTION_TITLES[attention] : report.models[model].name;
  const table = headGrid({
    label: `${report.models[model].name}, ${attention}, layers by heads`,
    layers: layersOf(model, attention),
    width: widestLayer(attention),
    fill: (cell, head) => overview.cells.set(head.key, cell),
    choose: selectHead,
  });
  table.classList.add("heat");
  return element(
    "div",
    { class: "card" },
    element(isOnly ? "h3" : "h4", {}, ...breakable(title)),
    element("div", { class: "scroll" }, table),
  );
}

/* A table of layers by heads, moved in by arrow keys; `fill` puts into a cell what it shows. */
function headGrid({ label, layers, width, fill, choose }) {
  const table = element("table", { role: "grid", "aria-label": label });
  table.style.setProperty("--heads", width);
  const numbers = Array.from({ length: width }, (_, head) =>
    element("th", { scope: "col", role: "columnheader" }, String(head)),
  );
  table.append(
    element("thead", {}, element("tr", { role: "row" }, element("td", {}, "layer"), ...numbers)),
    element("tbody", {}, ...layers.map((layer) => gridRow(layer, width, fill))),
  );
  table.querySelector("td[tabindex]")?.setAttribute("tabindex", "0");
  table.addEventListener("keydown", (event) => moveInGrid(event, choose));
  table.addEventListener("click", (event) => choose(cellHead(event.target)));
  table.addEventListener("pointermove", (event) => showCellTooltip(event.target, event));
  table.addEventListener("pointerleave", hideTooltip);
  table.addEventListener("focusin", (event) => showCellTooltip(event.target));
  table.addEventListener("focusout", hideTooltip);
  return table;
}

function gridRow(layer, width, fill) {
  const row = element("tr", { role: "row" });
  row.append(element("th", { scope: "row", role: "rowheader" }, String(layer.layer)));
  for (let number = 0; number < width; number += 1) {
    const head = findHead(layer.model, layer.attention, layer.layer, number);
    const cell = element("td", { role: "gridcell", tabindex: "-1" });
    if (head) {
      cell.dataset.head = head.key;
      cell.setAttribute("aria-selected", "false");
      fill(cell, head);
    } else {
      cell.className = "absent";
      cell.setAttribute("aria-label", `layer ${layer.layer}, head ${number}: no such head`);
    }
    row.append(cell);
  }
  return row;
}

/* What the measure may be, or the smallest and largest number over all models: colours compare. */
function measureRange({ name, range }) {
  if (range) {
    return range;
  }
  const values = heads.map((head) => head.values[name]).filter((value) => value !== null);
  return values.length ? [Math.min(...values), Math.max(...values)] : [0, 0];
}

/* How many decimals cells have whose numbers are between these; as in decimals.py. */
function cellDigits(low, high) {
  return Math.max(Math.abs(low), Math.abs(high)) >= 0.1 ? 2 : 3;
}

function colourOverview() {
  const measure = measureNamed(overview.measure);
  if (!measure) {
    return;
  }
  const [low, high] = measureRange(measure);
  for (const [key, cell] of overview.cells) {
    const value = headByKey.get(key).values[measure.name];
    const isMissing = value === null;
    const colour = rampColour(high > low && !isMissing ? (value - low) / (high - low) : 0.5);
    cell.className = isMissing ? "unmeasured" : "";
    cell.classList.toggle("copies", headByKey.get(key).copies);
    cell.style.background = isMissing ? "" : css(colour);
    cell.style.color = isMissing ? "" : textOn(colour);
    cell.textContent = isMissing ? NOTHING : decimal(value, cellDigits(low, high));
    cell.setAttribute("aria-label", cellLabel(headByKey.get(key), measure));
  }
  byId("measure-meaning").textContent = `${measure.title}: ${measure.meaning}.`;
  showOverviewLegend(low, high);
}

function showOverviewLegend(low, high) {
  const cells = [...document.querySelectorAll("#grids td[role=gridcell]")];
  const swatches = [];
  if (cells.some((cell) => cell.classList.contains("unmeasured"))) {
    swatches.push(["unmeasured", "no number"]);
  }
  if (cells.some((cell) => cell.classList.contains("absent"))) {
    swatches.push(["absent", "head pruned or not there"]);
  }
  if (heads.some(({ copies }) => copies)) {
    swatches.push(["copies", "words are copied by this head"]);
  }
  const ends = low === high ? null : [decimal(low), decimal(high)];
  legend(byId("overview-legend"), ends, swatches);
}

function cellLabel(head, measure) {
  const value = head.values[measure.name];
  const number = value === null ? "no number" : decimal(value);
  const roles = head.roles.length ? `, ${head.roles.join(", ")}` : "";
  return `layer ${head.layer}, head ${head.head}: ${measure.title} ${number}${roles}`;
}

function cellHead(target) {
  return headByKey.get(target.closest("td")?.dataset.head);
}

function showCellTooltip(target, pointer) {
  const cell = target.closest("td[aria-label]");
  if (!cell) {
    hideTooltip();
    return;
  }
  const box = cell.getBoundingClientRect();
  const [x, y] = pointer ? [pointer.clientX, pointer.clientY] : [box.left, box.bottom - 12];
  showTooltip(cell.getAttribute("aria-label"), x, y);
}

function moveInGrid(event, choose) {
  const cell = event.target.closest("td[role=gridcell]");
  if (!cell) {
    return;
  }
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(cellHead(cell));
    return;
  }
  const next = neighbour(cell, event.key);
  if (next) {
    event.preventDefault();
    focusCell(next);
  }
}

function neighbour(cell, key) {
  const rows = [...cell.closest("tbody").rows].map((row) => [...row.querySelectorAll("td")]);
  const row = rows.findIndex((cells) => cells.includes(cell));
  const column = rows[row].indexOf(cell);
  if (key === "Home" || key === "End") {
    return rows[row].at(key === "Home" ? 0 : -1);
  }
  const step = ARROWS[key];
  return step && rows[row + step[0]]?.[column + step[1]];
}

/* One cell of a grid can be reached by Tab: the one that was last in use. */
function focusCell(cell) {
  makeReachable(cell);
  cell.focus();
}

function makeReachable(cell) {
  cell.closest("table").querySelector("td[tabindex='0']")?.setAttribute("tabindex", "-1");
  cell.setAttribute("tabindex", "0");
}

function markSelectedCell(head) {
  document.querySelectorAll("#grids [aria-selected=true]").forEach((cell) => {
    cell.setAttribute("aria-selected", "false");
  });
  const cell = overview.cells.get(head.key);
  cell.setAttribute("aria-selected", "true");
  makeReachable(cell);
}
