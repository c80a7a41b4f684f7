/* What a figure is drawn from, as a table: for those who cannot see it, and to copy. */

const ROWS_SHOWN = 200;

function figureNumbers(figure) {
  const made = element("details", { class: "figure-numbers" }, element("summary", {}, "Numbers"));
  // A page of many figures has many numbers: a table is made when it is asked for
  made.addEventListener("toggle", () => made.append(numbersTable(figure)), { once: true });
  return made;
}

function numbersTable(figure) {
  const rows = figureRows(figure.spec);
  const columns = Object.keys(rows[0]).filter((name) => !Array.isArray(rows[0][name]));
  const titles = columns.map((name) => element("th", { scope: "col" }, name));
  const body = rows.slice(0, ROWS_SHOWN).map((row) =>
    element("tr", {}, ...columns.map((name) => element("td", {}, String(row[name] ?? NOTHING)))),
  );
  const table = element(
    "table",
    { class: "plain" },
    element("thead", {}, element("tr", {}, ...titles)),
    element("tbody", {}, ...body),
  );
  const rest = rows.length > ROWS_SHOWN ? `The first ${ROWS_SHOWN} of ${grouped(rows.length)} rows.` : null;
  const label = `Numbers of the figure ${figure.title}`;
  return element(
    "div",
    {},
    rest && element("p", { class: "hint" }, rest),
    element("div", { class: "scroll numbers-box", tabindex: "0", role: "region", "aria-label": label }, table),
  );
}

/* The largest of the tables of a specification: others only draw lines of reference. */
function figureRows(spec) {
  return Object.values(spec.datasets).reduce((most, rows) => (rows.length > most.length ? rows : most));
}
