/* Saving grids, maps, figures and tables as files, by the browser alone. */

const drawings = JSON.parse(byId("drawing-data").textContent);
const FORMATS = ["svg", "png", "pdf"];
const PNG_DOTS = 3;

/* Grids and maps are drawn by the library of the figures; a page may be without. */
function canDraw() {
  return byId("library").textContent !== "";
}

/* A template with its places, strings such as "$rows", filled in. */
function filled(template, values) {
  if (Array.isArray(template)) {
    return template.map((part) => filled(part, values));
  }
  if (template !== null && typeof template === "object") {
    return Object.fromEntries(Object.entries(template).map(([key, part]) => [key, filled(part, values)]));
  }
  const isPlace = typeof template === "string" && template.startsWith("$");
  return isPlace && Object.hasOwn(values, template.slice(1)) ? values[template.slice(1)] : template;
}

/* A name in lines no longer than so many pixels, broken behind signs such as "+". */
function linesOf(name, length, letter) {
  const most = Math.max(10, Math.floor(length / letter));
  const lines = [""];
  for (const part of name.match(/[^-_+:=./,; ]*[-_+:=./,; ]?/g)) {
    if (lines.at(-1) && lines.at(-1).length + part.trimEnd().length > most) {
      lines.push("");
    }
    lines.push(lines.pop() + part);
    while (lines.at(-1).trimEnd().length > most) {
      const long = lines.pop();
      lines.push(long.slice(0, most), long.slice(most));
    }
  }
  const kept = lines.map((line) => line.trim()).filter(Boolean);
  return kept.length ? kept : [name];
}

/* Strings, in lists and objects or alone, as an expression of Vega: JSON, but for the string "if", which
   Vega 6 takes for its function. */
function expressionOf(value) {
  if (Array.isArray(value)) {
    return `[${value.map(expressionOf).join(",")}]`;
  }
  if (typeof value === "object") {
    const entries = Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}:${expressionOf(one)}`);
    return `{${entries.join(",")}}`;
  }
  return value === "if" ? '"i"+"f"' : JSON.stringify(value);
}

/* The labelExpr of a header whose names are broken into lines. */
function labelsInLines(names, length, letter = drawings.letter) {
  const lines = Object.fromEntries(names.map((name) => [name, linesOf(name, length, letter)]));
  return `(${expressionOf(lines)})[datum.value]`;
}

/* "Save", and a button for each format; `save` is told which. */
function saveButtons(what, formats, save) {
  const buttons = formats.map((format) => {
    const name = format === "tex" ? "LaTeX" : format.toUpperCase();
    const button = element("button", { type: "button", "aria-label": `Save as ${name}: ${what}` }, name);
    button.addEventListener("click", () => save(format));
    return button;
  });
  return element("div", { class: "save" }, element("span", { "aria-hidden": "true" }, "Save "), ...buttons);
}

/* Draws on white paper, whatever the page looks like, and hands the file to the reader. */
async function saveDrawing(name, format, spec, config) {
  const drawn = await embed(element("div"), spec, config);
  if (format === "png") {
    download(`${name}.png`, await drawn.view.toImageURL("png", PNG_DOTS));
  } else {
    const svg = await drawn.view.toSVG();
    const parts = format === "pdf" ? [await pdfOf(svg)] : [svg];
    downloadParts(`${name}.${format}`, parts, format === "pdf" ? "application/pdf" : "image/svg+xml");
  }
  drawn.finalize();
}

function downloadParts(file, parts, type) {
  const href = URL.createObjectURL(new Blob(parts, { type }));
  download(file, href);
  // The browser has begun to read it by then
  setTimeout(() => URL.revokeObjectURL(href), 60000);
}

function download(file, href) {
  element("a", { href, download: file }).click();
}
