/* What was analysed, and what the numbers mean. */

function showSummary() {
  const { data } = report;
  const { title, counts } = dataInWords(data);
  const own = report.search === null ? "" : `. Attention on text that each model generated: ${report.search}.`;
  byId("data-line").replaceChildren(
    element("strong", {}, title),
    `, ${data.subset} of ${data.path}: ${counts.join(", ")}${own}`,
  );
}

/* What the data is, by its kind, and how much of it there is. */
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
  if (data.kind === "labelled") {
    const few = data.labels.length <= 6 ? `: ${data.labels.join(", ")}` : "";
    const texts = plural(data.sentences, "text");
    return {
      title: `${data.labels.length} classes of texts${few}`,
      counts: [texts, `${grouped(data.source_tokens)} tokens`],
    };
  }
  const tokens = `${grouped(data.source_tokens)} source and ${grouped(data.target_tokens)} target tokens`;
  return { title: `${data.source_lang} → ${data.target_lang}`, counts: [sentences, tokens] };
}

const MODEL_COLUMNS = [
  ["Model", (model) => model.name],
  ["Architecture", (model) => model.architecture],
  [report.data.kind === "labelled" ? "Attention (encoder-self)" : "Attention", (model, number) => mappingsOf(number)],
  ...columnsOf("classification", ["Pooling", ({ pooling }) => poolingMappings(pooling)]),
  ["Heads", (model, number) => grouped(heads.filter((head) => head.model === number).length)],
  ["Parameters", (model) => grouped(model.parameters)],
  ["Updates", (model) => grouped(model.updates)],
  [lossTitle(), (model) => decimal(model.loss)],
  ...columnsOf("classification", ["Accuracy", ({ accuracy }) => percent(accuracy, 1)]),
  ...columnsOf("generated", ["Tokens generated", ({ tokens }) => grouped(tokens)]),
  ...columnsOf("generated", ["Without a word", ({ empty }) => grouped(empty)]),
  ...columnsOf("generated", ["Of the longest length", ({ longest }) => grouped(longest)]),
  ...columnsOf("copying", ["Copied (1 − g)", ({ share }) => percent(share)]),
  ...columnsOf("copying", ["Unreachable", ({ unreachable }) => grouped(unreachable)]),
  ...columnsOf("output", ["Words with a probability", ({ support }) => decimal(support, 1)]),
  ...columnsOf("output", ["Targets without", ({ unreachable }) => grouped(unreachable)]),
  ["Checkpoint", (model) => model.checkpoint],
];

function lossTitle() {
  if (report.data.kind === "labelled") {
    return "Loss (nats a text)";
  }
  return report.search === null ? "Loss (nats a token)" : "Loss of its text (nats a token)";
}

/* A column of what only some analyses, or some models of one, have. */
function columnsOf(field, [title, text]) {
  const isThere = report.models.some((model) => model[field]);
  return isThere ? [[title, (model) => (model[field] ? text(model[field]) : NOTHING)]] : [];
}

/* The mappings of a model's layers, each once. */
function mappingsOf(number) {
  const layers = report.layers.filter((layer) => layer.model === number && layer.heads.length);
  return [...new Set(layers.map((layer) => layer.mapping))].join(", ") || NOTHING;
}

/* What pools by which mapping, the mapping alone where it is one. */
function poolingMappings(pooling) {
  const mappings = new Set(pooling.map(({ mapping }) => mapping));
  return mappings.size === 1 ? [...mappings][0] : pooling.map(({ name, mapping }) => `${name}: ${mapping}`).join(", ");
}

function showModels() {
  const rows = report.models.map((model, number) => MODEL_COLUMNS.map(([, text]) => text(model, number)));
  byId("models-table").replaceChildren(tableBox("Models", MODEL_COLUMNS.map(([title]) => title), rows));
}

function showMeanings() {
  const terms = (pairs) => pairs.flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, `${text}.`)]);
  byId("meanings").replaceChildren(...terms(loneMeasures.map(({ title, meaning }) => [title, meaning])));
  byId("role-words").replaceChildren(...terms(report.roleWords));
}
