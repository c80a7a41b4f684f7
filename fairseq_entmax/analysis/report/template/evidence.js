/* How reliable the numbers are: how many sentences they are from, and whether measures tell what a
   head is worth. */

function showEvidence() {
  const parts = [importanceNotes(), agreementNotes()].filter(Boolean);
  byId("evidence-body").replaceChildren(...parts);
  byId("evidence").hidden = !parts.length;
  document.querySelector("nav a[href='#evidence']").parentElement.hidden = !parts.length;
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
    `${grouped(sentences)} of ${grouped(data)}`,
    error === null ? "only one sentence: no standard error" : `± ${decimal(error)}`,
  ]);
  return evidencePart(
    "How many sentences relevance and gradient are based on",
    hint(`Both need extra passes, and are computed on sentences spread evenly over the data. The table
      has the largest standard error, over sentences, of a head\u2019s share; the details of each head have its own.
      Differences between heads of less than three standard errors may be due to chance.`),
    tableBox("Sentences behind relevance and gradient", ["", "Sentences", "Largest standard error"], rows),
    report.importance.some(({ sentences, data }) => sentences < data)
      ? hint(...withOptions("More sentences, set by analyze --relevance-sentences and --gradient-sentences, make the errors smaller."))
      : null,
  );
}

function agreementNotes() {
  if (!report.agreement.length) {
    return null;
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
    hint(`Spearman\u2019s correlation over heads of each measure with how much worse the score is
      without the head (fairseq-entmax ablate); in brackets the 95 % interval and p. A measure
      whose interval includes 0 cannot be told from chance. \u201cWithin layers\u201d is the
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
