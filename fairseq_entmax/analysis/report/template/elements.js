/* Helpers that make elements. Text from the data always becomes text, never markup. */

function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function svgElement(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/* A table in its own scrolling box; the first cell of a row is its title. */
function tableBox(name, titles, rows) {
  const head = titles.map((title) => element("th", { scope: "col" }, title));
  const body = rows.map(([first, ...others]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", dir: "auto" }, first),
      ...others.map((text) => element("td", {}, String(text))),
    ),
  );
  const table = element("table", { class: "plain" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, table);
}

function hint(...content) {
  return element("p", { class: "hint" }, ...content);
}

function byId(id) {
  return document.getElementById(id);
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (chosen !== undefined) {
    select.value = String(chosen);
  }
}

function modelOptions() {
  return report.models.map((model, number) => [number, model.name]);
}

function attentionOptions() {
  return attentions.map((attention) => [attention, attention]);
}

/* A list of terms and their values. */
function definitions(pairs) {
  const parts = pairs.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value)));
  return element("dl", { class: "numbers" }, ...parts);
}

/* Scrolls a box, never the page, until the element in it is visible. */
function scrollInBox(box, target) {
  const outer = box.getBoundingClientRect();
  const inner = target.getBoundingClientRect();
  if (inner.top < outer.top + 48 || inner.bottom > outer.bottom) {
    box.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 2;
  }
}
