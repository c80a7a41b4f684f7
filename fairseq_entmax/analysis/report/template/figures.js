/* The figures, drawn by Vega when they come near the window, get the focus, or are printed. */

const PANEL = { smallest: 150, gap: 22 };
const LETTER = 6.6; // of a panel's title, on average
const SYMBOL = 30;
const AXIS_SPACE = 70;
const ATTEMPTS = 4;
const REDRAW_AFTER = 150; // milliseconds of a width that stays
const PAPER_WIDTH = 460;
const figureBoxes = new Map(); // by element: what is drawn in it, how wide, and for which turn

function setUpFigures() {
  const place = byId("figure-list");
  if (!report.figures.length) {
    place.append(element("p", {}, "There are no figures in this report."));
    return;
  }
  const near = new IntersectionObserver(
    (entries) => entries.filter((one) => one.isIntersecting).forEach(({ target }) => drawOnce(target)),
    { rootMargin: "300px" },
  );
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => redrawSoon(target)));
  report.figures.forEach((figure, number) => {
    const box = element("div", { class: "chart scroll", tabindex: "0", role: "group", "aria-label": figure.title });
    box.dataset.figure = number;
    figureBoxes.set(box, { figure, drawn: null, width: 0, turn: 0, timer: 0 });
    place.append(figureElement(figure, box));
    box.addEventListener("focus", () => drawOnce(box));
    near.observe(box);
    resized.observe(box);
  });
  onTheme(() => Promise.all([...figureBoxes.keys()].filter(isBegun).map(drawFigure)));
}

function figureElement(figure, box) {
  const head = element(
    "div",
    { class: "figure-head" },
    element("h3", {}, figure.title),
    saveButtons(figure.title, FORMATS, (format) => saveFigure(figure, format)),
  );
  const caption = element("figcaption", {}, figure.caption);
  return element("figure", { id: `figure-${figure.name}` }, head, box, caption, figureNumbers(figure));
}

/* The library is a text until the first figure needs it: reading it takes a while. */
function loadLibrary() {
  if (!window.vegaEmbed) {
    document.head.append(element("script", {}, byId("library").textContent));
  }
}

function isBegun(box) {
  return figureBoxes.get(box).turn > 0;
}

async function drawOnce(box) {
  if (!isBegun(box)) {
    await drawFigure(box);
  }
}

function drawEveryFigure() {
  return Promise.all([...figureBoxes.keys()].map(drawOnce));
}

/* Boxes change their width in many small steps while a window is drawn larger. */
function redrawSoon(box) {
  const state = figureBoxes.get(box);
  clearTimeout(state.timer);
  state.timer = setTimeout(() => {
    if (isBegun(box) && box.clientWidth && box.clientWidth !== state.width) {
      drawFigure(box);
    }
  }, REDRAW_AFTER);
}

/* What was begun for an older theme or width is not shown. */
async function drawFigure(box) {
  const state = figureBoxes.get(box);
  state.turn += 1;
  const { turn } = state;
  state.width = box.clientWidth;
  const made = await fittedDrawing(state.figure, state.width);
  if (turn !== state.turn) {
    made.drawn.finalize();
    return;
  }
  state.drawn?.finalize();
  state.drawn = made.drawn;
  box.replaceChildren(made.place);
  box.dataset.drawn = "true";
}

/* How wide axes and titles are is known only once they are drawn: drawn anew, and smaller, while
   the drawing is wider than its box. */
async function fittedDrawing(figure, space) {
  let room = space;
  for (let attempt = 1; ; attempt += 1) {
    const place = element("div");
    const spec = withWholeLegends(fittedSpec(figure.spec, room), room);
    const drawn = await embed(place, spec, figureConfig(isDark(), room));
    const excess = Math.ceil(place.querySelector("svg").getAttribute("width") - space);
    if (excess <= 0 || attempt === ATTEMPTS) {
      return { drawn, place };
    }
    drawn.finalize();
    room -= excess;
  }
}

function embed(place, spec, config) {
  loadLibrary();
  return window.vegaEmbed(place, spec, {
    renderer: "svg",
    mode: "vega-lite",
    actions: false,
    tooltip: { theme: isDark() ? "dark" : "light" },
    config,
  });
}

/* What is saved is for white paper, whatever the page looks like. */
function saveFigure(figure, format) {
  const spec = figure.spec.width === "container" ? { ...figure.spec, width: PAPER_WIDTH } : figure.spec;
  const config = { ...figureConfig(false, PAPER_WIDTH), background: "white" };
  return saveDrawing(figure.name, format, spec, config);
}

/* A single panel is as wide as its box. Of several side by side, as many stand in a row as are
   wide enough to be read, and they share the width; rows and columns change places where only
   that lets a row fit. */
function fittedSpec(spec, space) {
  if (!spec.facet) {
    return { ...spec, width: space };
  }
  const { columns, stretches } = spec.usermeta;
  const least = stretches ? PANEL.smallest : spec.spec.width + PANEL.gap;
  const room = space - AXIS_SPACE;
  const { row, column } = spec.facet;
  if (row && columns * least > room && row.sort.length < columns && row.sort.length * least <= room) {
    const usermeta = { ...spec.usermeta, columns: row.sort.length };
    return fittedSpec({ ...spec, usermeta, facet: { row: upright(column), column: upright(row) } }, space);
  }
  const inRow = sideBySide(columns, least, room);
  const shared = Math.floor(room / inRow) - PANEL.gap;
  const width = stretches ? Math.max(PANEL.smallest - PANEL.gap, shared) : spec.spec.width;
  const sized = { ...spec, spec: { ...spec.spec, width } };
  if ("columns" in spec) {
    return evenly({ ...sized, columns: inRow, facet: withLines(spec.facet, width) });
  }
  if (inRow < columns) {
    return inLines(sized, inRow);
  }
  return { ...sized, facet: { row: withLines(row, spec.spec.height, true), column: withLines(column, width) } };
}

/* A side of panels without what was said of its titles: they turn when it changes its place. */
function upright(facet) {
  return { ...facet, header: {} };
}

/* Rows and columns of panels that are too wide, as panels one after the other. */
function inLines(spec, inRow) {
  const { row, column } = spec.facet;
  const sort = row.sort.flatMap((one) => column.sort.map((other) => `${one} · ${other}`));
  const calculate = `datum[${JSON.stringify(row.field)}] + ' · ' + datum[${JSON.stringify(column.field)}]`;
  const facet = { field: "panel", type: "nominal", title: null, sort };
  return evenly({
    ...spec,
    transform: [{ calculate, as: "panel" }, ...(spec.transform ?? [])],
    columns: inRow,
    facet: withLines(facet, spec.spec.width),
  });
}

/* How many of so many panels of a width stand in a line, the lines as even as can be. */
function sideBySide(count, width, space) {
  const most = Math.max(1, Math.floor(space / width));
  return Math.ceil(count / Math.ceil(count / most));
}

/* Where the last line of panels is shorter than the others, each has axes of its own: shared ones
   would stand below an empty place. */
function evenly(spec) {
  const isEven = spec.facet.sort.length % spec.columns === 0;
  return isEven ? spec : { ...spec, resolve: { ...spec.resolve, axis: { x: "independent", y: "independent" } } };
}

/* A long name is broken into lines: it is not cut, and does not make its panel wider. */
function withLines(facet, length, isRow = false) {
  const isFlat = isRow && length < drawings.row;
  const flat = isFlat ? { labelAngle: 0, labelAlign: "left" } : {};
  const labelExpr = labelsInLines(facet.sort, isFlat ? drawings.row : length, LETTER);
  return { ...facet, header: { ...facet.header, labelExpr, labelLimit: 0, ...flat } };
}

/* Legends with a line for each name, where two of the longest have no room side by side. */
function withWholeLegends(spec, space) {
  const longest = Math.max(...report.models.map(({ name }) => name.length));
  if (2 * (longest * LETTER + SYMBOL) <= space) {
    return spec;
  }
  const walk = (part) => {
    if (part === null || typeof part !== "object" || Array.isArray(part)) {
      return Array.isArray(part) ? part.map(walk) : part;
    }
    const isOfModels = part.field === "model" && part.legend?.columns > 1;
    const whole = isOfModels ? { ...part, legend: { ...part.legend, columns: 1 } } : part;
    return Object.fromEntries(Object.entries(whole).map(([key, value]) => [key, walk(value)]));
  };
  return { ...spec, spec: walk(spec.spec), encoding: walk(spec.encoding ?? {}), layer: spec.layer && walk(spec.layer) };
}

function figureConfig(isOnDark, space) {
  const [ink, faint] = isOnDark ? ["#d9dce3", "#3b3f48"] : ["#33363d", "#dddddb"];
  const text = { labelColor: ink, titleColor: ink };
  return {
    background: "transparent",
    font: LABEL_FONT,
    title: { color: ink, subtitleColor: ink },
    axis: { ...text, gridColor: faint, domainColor: faint, tickColor: faint },
    legend: { ...text, labelLimit: Math.max(60, space - AXIS_SPACE) },
    header: { ...text, labelFontSize: 12 },
    text: { color: ink },
    view: { stroke: faint },
  };
}
