/* Everything that is known about the selected head. */

function showDetails(head) {
  byId("details-title").textContent = headTitle(head);
  const values = loneMeasures
    .filter(({ name }) => head.values[name] !== null)
    .map((measure) => [measure.title, decimal(head.values[measure.name]) + errorText(head, measure)]);
  const parts = [offsetChart(head), densityChart(head)];
  byId("details-body").replaceChildren(
    element("p", { class: "roles" }, head.roles.join("; ") || NO_ROLE),
    hint(`mapping ${head.mapping}`),
    definitions(values),
    ...parts.flatMap((part) => part ?? []),
  );
}

/* " ± 0.004", the standard error over sentences, for measures that are made on some of them. */
function errorText(head, measure) {
  const error = head.errors[measure.name];
  return error === null || error === undefined ? "" : ` ± ${decimal(error)}`;
}

function offsetChart(head) {
  if (!head.offsets) {
    return null;
  }
  const { maximum, weight } = head.offsets;
  const inner = Object.keys(weight).sort((a, b) => a - b);
  const names = { below: `<${inner[0]}`, above: `>${inner.at(-1)}` };
  const places = ["below", ...inner, "above"].filter((place) => place in maximum);
  const rows = places.map((place) => ({
    offset: (names[place] ?? place).replace("-", "−"),
    largest: maximum[place] ?? 0,
    weight: weight[place] ?? null,
  }));
  const box = chartBox("Relative offsets");
  drawChart(box, report.charts.offsets, rows);
  return [box, hint("Share of the queries whose largest weight is at this offset (bars), and mean weight there (strokes).")];
}

function densityChart(head) {
  if (!head.histogram?.some(Boolean)) {
    return null;
  }
  const { length } = head.histogram;
  const rows = head.histogram.map((sentences, bin) => ({ from: bin / length, to: (bin + 1) / length, sentences }));
  const box = chartBox("Density per sentence");
  drawChart(box, report.charts.density, rows);
  return [box, hint("Number of sentences by density.")];
}
