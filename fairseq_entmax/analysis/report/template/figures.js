/* The figures, drawn by Vega when they come near the window. */

const PANEL = { smallest: 150, gap: 22 };
const AXIS_SPACE = 70;
const drawnFigures = new Map();

function setUpFigures() {
  const place = byId("figure-list");
  if (!report.figures.length) {
    place.append(element("p", {}, "There are no figures in this report."));
    return;
  }
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        observer.unobserve(entry.target);
        drawFigure(entry.target);
      }
    },
    { rootMargin: "300px" },
  );
  report.figures.forEach((figure, number) => {
    const chart = element("div", { class: "chart scroll" });
    chart.dataset.figure = number;
    const made = element(
      "figure",
      { id: `figure-${figure.name}` },
      element("h3", {}, figure.title),
      chart,
      element("figcaption", {}, figure.caption),
    );
    place.append(made);
    observer.observe(chart);
  });
  onTheme(() => [...drawnFigures.keys()].forEach(drawFigure));
}

/* The library is a text until the first figure needs it: reading it takes a while. */
function loadLibrary() {
  if (!window.vegaEmbed) {
    document.head.append(element("script", {}, byId("library").textContent));
  }
}

async function drawFigure(place) {
  loadLibrary();
  const figure = report.figures[Number(place.dataset.figure)];
  drawnFigures.get(place)?.finalize();
  drawnFigures.set(place, null);
  const drawn = await window.vegaEmbed(place, fittedSpec(figure.spec, place.clientWidth), {
    renderer: "svg",
    mode: "vega-lite",
    actions: { export: true, source: false, compiled: false, editor: false },
    downloadFileName: figure.name,
    i18n: { CLICK_TO_VIEW_ACTIONS: `Save the figure: ${figure.title}` },
    tooltip: { theme: isDark() ? "dark" : "light" },
    config: figureConfig(),
  });
  drawnFigures.set(place, drawn);
  place.dataset.drawn = "true";
}

/* A single panel is as wide as its box by itself. Of several side by side, as many stand in a
   row as are wide enough to be read, and they share the width. */
function fittedSpec(spec, space) {
  const { columns, stretches } = spec.usermeta ?? {};
  if (!spec.facet || !stretches) {
    return spec;
  }
  const mayWrap = "columns" in spec;
  const fitting = Math.max(1, Math.floor((space - AXIS_SPACE) / PANEL.smallest));
  const inRow = mayWrap ? Math.min(columns, fitting) : columns;
  const width = Math.floor((space - AXIS_SPACE) / inRow) - PANEL.gap;
  return {
    ...spec,
    ...(mayWrap ? { columns: inRow } : {}),
    spec: { ...spec.spec, width: Math.max(PANEL.smallest, width) },
  };
}

function figureConfig() {
  const [ink, faint] = isDark() ? ["#d9dce3", "#3b3f48"] : ["#33363d", "#dddddb"];
  const text = { labelColor: ink, titleColor: ink };
  return {
    background: "transparent",
    font: LABEL_FONT,
    title: { color: ink, subtitleColor: ink },
    axis: { ...text, gridColor: faint, domainColor: faint, tickColor: faint },
    legend: text,
    header: text,
    text: { color: ink },
    view: { stroke: faint },
  };
}
