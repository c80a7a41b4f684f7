/* What was analysed, and what the numbers mean. */

function showSummary() {
  const { data } = report;
  const { title, counts } = dataInWords(data);
  const own = report.search === null ? "" : `. Attention on text that each model generated: ${report.search}.`;
  byId("data-line").replaceChildren(
    element("strong", {}, title),
    `, ${data.subset} of ${data.path}: ${counts.join(", ")}${own}`,
  );
  const found = report.inShort.map(([name, text]) => element("p", {}, element("strong", {}, name), ` ${text}`));
  byId("in-short").replaceChildren(...found);
}

/* What the data is and how large it is, by its kind. */
function dataInWords(data) {
  const sentences = plural(data.sentences, "sentence");
  if (data.kind === "text") {
    const { break_mode: mode, tokens } = data.samples;
    const cut = mode === "none" ? `of ${tokens} tokens` : `broken by ${mode}`;
    return {
      title: "Text",
      counts: [`${plural(data.sentences, "sample")} ${cut}`, `${grouped(data.target_tokens)} tokens`],
    };
  }
  if (data.kind === "labelled" || data.kind === "masked") {
    return {
      title: data.kind === "labelled" ? "Texts with labels" : "Text with masked words",
      counts: [plural(data.sentences, "text"), `${grouped(data.source_tokens)} tokens`],
    };
  }
  const tokens = `${grouped(data.source_tokens)} source and ${grouped(data.target_tokens)} target tokens`;
  return { title: `${data.source_lang} → ${data.target_lang}`, counts: [sentences, tokens] };
}

/* How the values in a column of the table of models are formatted. */
const STYLES = {
  text: (value) => value ?? NOTHING,
  count: grouped,
  tenths: (value) => decimal(value, 1),
  thousandths: decimal,
  percent,
  percent_tenths: (value) => percent(value, 1),
};

function showModels() {
  const rows = report.models.map((_, number) => report.modelColumns.map(([, style, values]) => STYLES[style](values[number])));
  byId("models-table").replaceChildren(tableBox("Models", report.modelColumns.map(([title]) => title), rows));
}

function showMeanings() {
  const terms = (pairs) => pairs.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, `${text}.`)]);
  byId("meanings").replaceChildren(...terms(loneMeasures.map(({ title, meaning }) => [title, meaning])));
  byId("role-words").replaceChildren(...terms(report.roleWords));
}
