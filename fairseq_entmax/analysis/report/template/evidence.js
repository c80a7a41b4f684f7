/* How reliable the numbers are: how many sentences they are from, whether learned values keep their
   initial order, and whether measures tell what a head is worth. */

function showEvidence() {
  byId("evidence-body").replaceChildren(...[importanceNotes(), courseNotes(), agreementNotes()].filter(Boolean));
  if (report.chosen) {
    byId("chosen").replaceChildren(...withOptions(report.chosen));
  }
}

function modelName(number) {
  return report.models[number].name;
}

function evidencePart(title, ...content) {
  return element("div", { class: "evidence" }, element("h3", {}, title), ...content);
}

function importanceNotes() {
  if (!report.importance.length) {
    return null;
  }
  const rows = report.importance.map(({ model, measure, sentences, data, error }) => [
    `${measure} of ${modelName(model)}`,
    sentences === null ? NOTHING : `${grouped(sentences)} of ${grouped(data)}`,
    largestErrorText(sentences, error),
  ]);
  return evidencePart(
    "How many sentences relevance and gradient are based on",
    hint(`Both need extra passes, and are computed on sentences spread evenly over the data. The table
      has the largest standard error, over sentences, of a head\u2019s share; the details of each head have its own.
      Differences between heads of less than three standard errors may be due to chance.`),
    tableBox("Sentences behind relevance and gradient", ["", "Sentences", "Largest standard error"], rows),
    report.importance.some(({ sentences, data }) => sentences !== null && sentences < data)
      ? hint(...withOptions("More sentences, set by analyze --relevance-sentences and --gradient-sentences, make the errors smaller."))
      : null,
  );
}

function largestErrorText(sentences, error) {
  if (error !== null) {
    return `± ${decimal(error)}`;
  }
  return sentences === 1 ? "only one sentence: no standard error" : "not in this analysis";
}

function courseNotes() {
  if (!report.courses.length) {
    return null;
  }
  const known = report.courses.filter((one) => "value" in one);
  const columns = ["", "Updates", "Heads", "All", ...attentions];
  const rows = known.map((one) => [
    `${one.name} of ${modelName(one.model)}`,
    `${grouped(one.first)} to ${grouped(one.last)}`,
    grouped(one.heads),
    signed(one.value),
    ...attentions.map((attention) => signed(one.attentions[attention])),
  ]);
  const words = report.courses.map(({ model, name, text }) =>
    element("li", {}, `${name} of ${modelName(model)}: ${text}`),
  );
  return evidencePart(
    "Whether heads keep their initial order",
    hint(`Spearman\u2019s correlation of heads\u2019 ranks at the first and last updates that training
      recorded: 1 is the same order, 0 an unrelated one. In a new model the initial values are drawn at random; a
      training that starts from a checkpoint takes them from it.`),
    rows.length ? tableBox("Initial and final ranks", columns, rows) : null,
    element("ul", {}, ...words),
  );
}

function agreementNotes() {
  const measures = report.measures.filter(({ name }) => ["relevance", "gradient"].includes(name));
  if (!report.agreement.length) {
    return measures.length
      ? evidencePart(
          "Whether relevance shows what a head is worth",
          element("p", {}, ...withOptions(`This report does not show it: relevance, gradient and confidence are measured on the
            whole model, not what it loses without a head. fairseq-entmax ablate --scores loss measures that, and
            report --ablation shows it beside them, with their correlations. Relevance alone can mislead.`)),
        )
      : null;
  }
  const places = new Map();
  for (const one of report.agreement) {
    const key = JSON.stringify([one.model, one.score, one.heads]);
    places.set(key, { ...(places.get(key) ?? {}), [one.measure]: one });
  }
  const names = [...new Set(report.agreement.map(({ measure }) => measure))];
  const rows = [...places].map(([key, own]) => {
    const [model, score, heads] = JSON.parse(key);
    const number = Math.max(...Object.values(own).map((one) => one.number));
    return [`${model}, ${score}: ${heads}`, grouped(number), ...names.map((name) => correlationText(own[name]))];
  });
  return evidencePart(
    "Whether relevance shows what a head is worth",
    ...report.agreementWords.map((text) => element("p", { class: "finding" }, text)),
    hint(`Spearman\u2019s correlation over heads of each measure with how much worse the score is
      without the head (fairseq-entmax ablate); in brackets the 95 % interval and p. \u201cWithin layers\u201d is the
      mean over layers, because relevance and gradient are shares of a layer.`),
    tableBox("Correlation with the harm of removing a head", ["Model, score: heads", "Heads", ...names], rows),
  );
}

function correlationText(one) {
  if (!one) {
    return NOTHING;
  }
  const p = one.p === null || one.p === undefined ? "" : one.p < 0.001 ? ", p < 0.001" : `, p ${one.p.toFixed(3)}`;
  return one.low === null ? signed(one.value) : `${signed(one.value)} (${signed(one.low)} to ${signed(one.high)}${p})`;
}
