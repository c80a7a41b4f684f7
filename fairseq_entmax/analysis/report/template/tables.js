/* The list of heads as a file, as it is filtered and sorted. */

function setUpTables() {
  document.querySelector("#heads .controls").append(saveButtons("the heads of the list", ["csv", "tex"], saveHeads));
}

function saveHeads(format) {
  const shown = visibleRows().map((row) => headByKey.get(row.dataset.head));
  const text = format === "csv" ? headsCsv(shown) : headsLatex(shown);
  downloadParts(`heads.${format}`, [text], format === "csv" ? "text/csv" : "application/x-tex");
}

/* Every number that stands alone; what a head does not have is empty. */
function headsCsv(shown) {
  const cell = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const line = (values) => `${values.map((value) => cell(String(value ?? ""))).join(",")}\n`;
  const measures = loneMeasures.map(({ name }) => name);
  const lines = shown.map((head) => {
    const place = [report.models[head.model].name, head.attention, head.layer, head.head, head.mapping];
    return line([...place, head.roles.join("; "), ...measures.map((name) => head.values[name])]);
  });
  return line(["model", "attention", "layer", "head", "mapping", "roles", ...measures]) + lines.join("");
}

/* A tabular with the rules of booktabs, a rule between models where each stands together. */
function headsLatex(shown) {
  const measures = report.measures.filter(({ isMain }) => isMain);
  const row = (cells) => `${cells.join(" & ")} \\\\`;
  const titles = ["Model", "Attention", "Layer", "Head", ...measures.map(({ title }) => title), "Role"];
  const changes = shown.filter((head, place) => place === 0 || shown[place - 1].model !== head.model);
  const isByModel = changes.length === new Set(shown.map(({ model }) => model)).size;
  const lines = shown.flatMap((head, place) => {
    const isFirst = isByModel ? changes.includes(head) : place === 0;
    const numbers = measures.map(({ name }) => latex(decimal(head.values[name]).replace("-", "−")));
    const texts = [latex(report.models[head.model].name), latex(head.attention), head.layer, head.head];
    return [...(isFirst ? ["\\midrule"] : []), row([...texts, ...numbers, latex(head.roles.join("; "))])];
  });
  return [
    "% needs \\usepackage{booktabs}",
    `\\begin{tabular}{llrr${"r".repeat(measures.length)}l}`,
    "\\toprule",
    row(titles.map(latex)),
    ...lines,
    "\\bottomrule",
    "\\end{tabular}",
    "",
  ].join("\n");
}

/* Text as LaTeX prints it, in a cell too: behind "\\\\" a "[" or "*" starts an argument. */
function latex(text) {
  const printed = [...text].map((sign) => drawings.latex[sign] ?? sign).join("");
  return /^\s*[[*]/.test(printed) ? `{}${printed}` : printed;
}
