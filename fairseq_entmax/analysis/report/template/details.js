/* Everything that is known of the selected head. */

const RELATIONS_SHOWN = 8;

function setUpDetails() {
  onSelect(showDetails);
}

function showDetails(head) {
  byId("details-title").textContent = headTitle(head);
  const roles = head.roles.length ? head.roles.join("; ") : NO_ROLE;
  const values = loneMeasures
    .filter((measure) => head.values[measure.name] !== null)
    .map((measure) => [measure.title, decimal(head.values[measure.name]) + errorText(head, measure)]);
  byId("details-body").replaceChildren(
    element("p", { class: "roles" }, roles),
    element("p", { class: "hint" }, `mapping ${head.mapping}`),
    definitions(values),
    ...[offsetProfile(head), densityHistogram(head), dependencyTable(head)].filter(Boolean),
  );
}

/* " ± 0.004", the standard error over sentences, of what is worked out for some of them. */
function errorText(head, measure) {
  const error = head.errors[measure.name];
  return error === null || error === undefined ? "" : ` ± ${decimal(error)}`;
}

/* Bars of where the largest weight is, and the mean weight there, by relative offset. */
function offsetProfile(head) {
  if (!head.offsets) {
    return null;
  }
  const { maximum, weight } = head.offsets;
  const inner = Object.keys(weight).sort((a, b) => Number(a) - Number(b));
  const places = ["below", ...inner, "above"].filter((place) => place in maximum);
  const columns = places.map((place) => {
    const name = { below: "‹", above: "›" }[place] ?? offsetText(place);
    const share = maximum[place] ?? 0;
    const mean = weight[place] ?? null;
    const text = `offset ${offsetName(place, inner)}: ${percent(share)} of the largest weights`;
    const meanText = mean === null ? "" : `, mean weight ${decimal(mean)}`;
    return barColumn(name, [share, mean ?? 0], text + meanText);
  });
  return chart(
    "Relative offset",
    "Share of the queries whose largest weight is there (filled), and mean weight there (outlined).",
    columns,
  );
}

function offsetName(place, inner) {
  if (place === "below") {
    return `below ${offsetText(inner[0])}`;
  }
  return place === "above" ? `above ${offsetText(inner.at(-1))}` : offsetText(place);
}

function densityHistogram(head) {
  const counts = head.histogram;
  const largest = Math.max(0, ...(counts ?? []));
  if (!largest) {
    return null;
  }
  const columns = counts.map((count, bin) => {
    const [from, to] = [bin, bin + 1].map((edge) => decimal(edge / counts.length, 2));
    const isLabelled = bin === 0 || bin === counts.length - 1;
    const name = isLabelled ? String(bin && 1) : "";
    return barColumn(name, [count / largest], `density ${from} to ${to}: ${plural(count, "sentence")}`);
  });
  return chart("Density", `How many sentences have which density; the highest bar is ${plural(largest, "sentence")}.`, columns);
}

function barColumn(name, shares, text) {
  const bars = shares.map((share, number) => {
    const bar = element("span", { class: number ? "bar outlined" : "bar filled" });
    bar.style.height = `${(100 * share).toFixed(1)}%`;
    return bar;
  });
  return element(
    "li",
    { title: text },
    element("span", { class: "bars", "aria-hidden": "true" }, ...bars),
    element("span", { class: "bar-name", "aria-hidden": "true" }, name),
    element("span", { class: "unseen" }, text),
  );
}

function chart(title, caption, columns) {
  return element(
    "div",
    { class: "mini" },
    element("h4", {}, title),
    element("ul", { class: "columns" }, ...columns),
    element("p", { class: "hint" }, caption),
  );
}

/* The relations that the head finds best, beside what a fixed offset finds. */
function dependencyTable(head) {
  const known = report.relations;
  if (!head.dependencies || !known) {
    return null;
  }
  const rows = Object.entries(head.dependencies)
    .filter(([relation]) => relation in known)
    .flatMap(([relation, accuracy]) =>
      ["to_head", "to_dependent"].map((direction) => ({
        name: `${relation} ${direction.replace("_", " ")}`,
        accuracy: accuracy[direction],
        baseline: known[relation][direction].baseline,
      })),
    )
    .filter((row) => row.accuracy !== null && row.baseline !== null)
    .sort((a, b) => b.accuracy - b.baseline - (a.accuracy - a.baseline))
    .slice(0, RELATIONS_SHOWN);
  if (!rows.length) {
    return null;
  }
  const titles = ["Relation", "Accuracy", "Fixed offset"].map((title) =>
    element("th", { scope: "col" }, title),
  );
  const body = rows.map((row) =>
    element(
      "tr",
      { class: row.accuracy > row.baseline ? "better" : "" },
      element("th", { scope: "row" }, row.name),
      element("td", {}, percent(row.accuracy)),
      element("td", {}, percent(row.baseline)),
    ),
  );
  return element(
    "div",
    { class: "mini" },
    element("h4", {}, "Dependency relations"),
    element(
      "table",
      { class: "plain" },
      element("thead", {}, element("tr", {}, ...titles)),
      element("tbody", {}, ...body),
    ),
  );
}
