/* The list of heads: a click on a column's title sorts it, and text filters it. */

const TEXT_COLUMNS = [
  { title: "Model", value: (head) => report.models[head.model].name, mayBeCut: true },
  { title: "Attention", value: (head) => head.attention },
  { title: "Layer", value: (head) => head.layer, isNumber: true, digits: 0 },
  { title: "Head", value: (head) => head.head, isNumber: true, digits: 0 },
  { title: "Role", value: (head) => head.roles.join("; "), mayBeCut: true },
];
const MEASURE_COLUMNS = report.measures
  .filter((measure) => measure.isMain)
  .map((measure) => ({
    title: measure.title,
    value: (head) => head.values[measure.name],
    hint: (head) => errorText(head, measure).trim() || null,
    isNumber: true,
    digits: 3,
    isMeasure: true,
  }));
const COLUMNS = [...TEXT_COLUMNS, ...MEASURE_COLUMNS];
const list = { rows: [], sorted: null, isDescending: false };

function setUpHeads() {
  fillSelect(byId("heads-model"), [["", "all"], ...modelOptions()], "");
  fillSelect(byId("heads-attention"), [["", "all"], ...attentionOptions()], "");
  const titles = COLUMNS.map((column) => {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => sortBy(column));
    const side = column.isNumber ? "number" : "";
    column.titleCell = element("th", { scope: "col", "aria-sort": "none", class: side }, button);
    return column.titleCell;
  });
  list.rows = heads.map(listRow);
  const body = element("tbody", {}, ...list.rows.map(({ row }) => row));
  body.addEventListener("click", (event) => selectHead(rowHead(event.target)));
  body.addEventListener("keydown", moveInList);
  byId("heads-table").append(element("thead", {}, element("tr", {}, ...titles)), body);
  for (const id of ["heads-filter", "heads-model", "heads-attention"]) {
    byId(id).addEventListener("input", filterList);
  }
  filterList();
  onSelect(markSelectedRow);
}

function listRow(head) {
  const cells = COLUMNS.map((column) => {
    const value = column.value(head);
    const text = column.isNumber ? decimal(value, column.digits) : value;
    const side = column.isNumber ? "number" : column.mayBeCut ? "cut" : "";
    return element("td", { role: "gridcell", class: side, title: column.hint?.(head) }, text);
  });
  const row = element("tr", { tabindex: "-1", "aria-selected": "false" }, ...cells);
  row.dataset.head = head.key;
  return { head, row, text: searched(`${headTitle(head)} ${head.mapping} ${head.roles.join(" ")}`) };
}

/* Makes "layer 2" one word, so that its number does not match another one. */
function searched(text) {
  return ` ${text.toLowerCase().replace(/\b(layer|head)\s+(\d+)\b/g, "$1=$2 ")} `;
}

/* Sorts measures from the largest, other columns from the smallest or first; empty cells come last. */
function sortBy(column) {
  list.isDescending = list.sorted === column ? !list.isDescending : Boolean(column.isMeasure);
  list.sorted = column;
  const sign = list.isDescending ? -1 : 1;
  list.rows.sort((a, b) => {
    const [x, y] = [column.value(a.head), column.value(b.head)];
    const isEmpty = (value) => value === null || value === "";
    if (isEmpty(x) || isEmpty(y)) {
      return isEmpty(x) - isEmpty(y);
    }
    return sign * (column.isNumber ? x - y : x.localeCompare(y));
  });
  for (const other of COLUMNS) {
    const order = list.isDescending ? "descending" : "ascending";
    other.titleCell.setAttribute("aria-sort", other === column ? order : "none");
  }
  byId("heads-table").tBodies[0].append(...list.rows.map(({ row }) => row));
  byId("heads-scroll").scrollTop = 0;
}

/* A head's text must have every term, and "head=1" as a whole word, so that head 1 is not head 11. */
function filterList() {
  const terms = searched(byId("heads-filter").value).split(/\s+/).filter(Boolean);
  const model = byId("heads-model").value;
  const attention = byId("heads-attention").value;
  for (const { head, row, text } of list.rows) {
    const isFound = terms.every((term) => text.includes(/=\d+$/.test(term) ? `${term} ` : term));
    const isModel = model === "" || head.model === Number(model);
    row.hidden = !isFound || !isModel || (attention !== "" && head.attention !== attention);
  }
  byId("heads-count").textContent = `${grouped(visibleRows().length)} of ${plural(list.rows.length, "head")}`;
  keepOneReachable();
}

function rowHead(target) {
  return headByKey.get(target.closest("tr")?.dataset.head);
}

function visibleRows() {
  return [...byId("heads-table").tBodies[0].rows].filter((row) => !row.hidden);
}

/* Lets Tab reach exactly one of the rows that the filter leaves. */
function keepOneReachable(wanted) {
  const current = byId("heads-table").querySelector("tr[tabindex='0']");
  const next = wanted ?? (current && !current.hidden ? current : visibleRows()[0]);
  current?.setAttribute("tabindex", "-1");
  next?.setAttribute("tabindex", "0");
}

function moveInList(event) {
  const row = event.target.closest("tr");
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    selectHead(rowHead(row));
    return;
  }
  const rows = visibleRows();
  const at = rows.indexOf(row);
  const next = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: rows.length - 1 }[event.key];
  if (next !== undefined && rows[next]) {
    event.preventDefault();
    keepOneReachable(rows[next]);
    rows[next].focus({ preventScroll: true });
    scrollInBox(byId("heads-scroll"), rows[next]);
  }
}

function markSelectedRow(head) {
  for (const { head: other, row } of list.rows) {
    row.setAttribute("aria-selected", String(other === head));
    if (other === head && !row.hidden) {
      keepOneReachable(row);
      scrollInBox(byId("heads-scroll"), row);
    }
  }
}
