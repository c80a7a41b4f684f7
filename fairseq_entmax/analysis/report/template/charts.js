/* Charts, drawn by Vega from the specifications that the report's command wrote. */

const FONT = "system-ui, sans-serif";
const charts = new Map(); // by box: its last chart, and the function that draws it again

/* Draws a chart into a box. If a later call has begun meanwhile, only the later chart is shown. */
async function drawChart(box, spec, rows) {
  if (!window.vegaEmbed) {
    // Kept as text until the first chart needs it, because parsing it takes a while
    document.head.append(element("script", {}, byId("library").textContent));
  }
  const state = charts.get(box) ?? {};
  charts.set(box, state);
  state.redraw = () => drawChart(box, spec, rows);
  const turn = (state.turn = (state.turn ?? 0) + 1);
  const place = element("div");
  const full = rows ? { ...spec, datasets: { rows } } : spec;
  const theme = systemTheme.matches ? "dark" : "light";
  const options = { renderer: "svg", mode: "vega-lite", actions: false, tooltip: { theme }, config: chartConfig() };
  const made = await window.vegaEmbed(place, full, options);
  if (turn !== state.turn) {
    made.finalize();
    return null;
  }
  state.made?.finalize();
  state.made = made;
  box.replaceChildren(place);
  box.dataset.drawn = "true";
  return made.view;
}

function chartConfig() {
  const [ink, faint] = systemTheme.matches ? ["#d9dce3", "#3b3f48"] : ["#33363d", "#dddddb"];
  const text = { labelColor: ink, titleColor: ink };
  return {
    background: "transparent",
    font: FONT,
    range: { heatmap: heatColours() },
    title: { color: ink },
    axis: { ...text, gridColor: faint, domainColor: faint, tickColor: faint },
    legend: { ...text, labelLimit: 300 },
    header: { ...text, labelFontSize: 12 },
    text: { color: ink },
    view: { stroke: faint },
  };
}

function chartBox(label) {
  return element("div", { class: "chart scroll", tabindex: "0", role: "group", "aria-label": label });
}

/* The figures. Each is drawn when it comes near the window or gets the focus. */
function setUpFigures() {
  const place = byId("figure-list");
  if (!report.figures.length) {
    place.append(element("p", {}, "There are no figures in this report."));
    return;
  }
  const near = new IntersectionObserver(
    (entries) => entries.filter((one) => one.isIntersecting).forEach(({ target }) => target.drawOnce()),
    { rootMargin: "300px" },
  );
  for (const { name, title, caption, spec } of report.figures) {
    const box = chartBox(title);
    box.drawOnce = () => charts.has(box) || drawChart(box, spec);
    box.addEventListener("focus", box.drawOnce);
    near.observe(box);
    const head = element("h3", {}, title);
    place.append(element("figure", { id: `figure-${name}` }, head, box, element("figcaption", {}, caption)));
  }
}
