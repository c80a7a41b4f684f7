/* How sure the numbers are: how many sentences they are from, whether learned values keep their
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
  const wide = report.importance.filter(({ error, small }) => error !== null && small !== null && error > small);
  const isAll = ({ sentences, data }) => sentences !== null && sentences >= data;
  const options = [...new Set(wide.filter((one) => !isAll(one)).map(({ option }) => option))];
  const ofAll = wide.filter(isAll).map(
    ({ model, measure, error, small }) => `${measure} of ${modelName(model)} took all sentences of the data, and its largest error is
      ${decimal(error)}, above ${small}, which analyze aims at: only more data make it smaller.`,
  );
  return evidencePart(
    "Of how many sentences relevance and gradient are",
    hint(`Both take passes of their own, and are of sentences spread evenly over the data.
      The standard error is that of a head\u2019s share, over sentences, of the head where it is largest; that of every
      head is in its details. Heads that differ by less than three of these may do so by chance.`),
    tableBox("Sentences behind relevance and gradient", ["", "Sentences", "Largest standard error"], rows),
    options.length > 0
      ? hint(...withOptions(`More sentences, by ${options.join(" and ")} of analyze, make the errors smaller.`))
      : null,
    ...ofAll.map((text) => hint(text)),
  );
}

function largestErrorText(sentences, error) {
  if (error !== null) {
    return `± ${decimal(error)}`;
  }
  return sentences === 1 ? "of one sentence: no standard error" : "not in this analysis";
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
    "Whether what was learned follows its start",
    hint(`Spearman\u2019s correlation of heads\u2019 ranks at the first update that training recorded
      and at the last: 1 is the same order, 0 is another. In a new model the start is drawn at random; a training
      that starts from a checkpoint takes it from there.`),
    rows.length ? tableBox("Ranks at the start and at the end", columns, rows) : null,
    element("ul", {}, ...words),
  );
}

function agreementNotes() {
  const measures = report.measures.filter(({ name }) => ["relevance", "gradient"].includes(name));
  if (!report.agreement.length) {
    return measures.length
      ? evidencePart(
          "Whether relevance says what a head is worth",
          element("p", {}, ...withOptions(`This report cannot say: relevance, gradient and confidence are numbers of the whole
            model, and not what it loses without a head. fairseq-entmax ablate --scores loss measures that, and report
            --ablation shows it beside them, with their correlations. Relevance alone can mislead.`)),
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
    "Whether relevance says what a head is worth",
    ...report.agreementWords.map((text) => element("p", { class: "finding" }, text)),
    hint(`Spearman\u2019s correlation, over heads, of each measure with how much worse the score
      is without the head (fairseq-entmax ablate); in brackets the interval of 95 %, and p. Within layers is the mean
      over layers, since relevance and gradient are shares of a layer.`),
    tableBox("Correlation with what is lost without a head", ["Model, score: heads", "Heads", ...names], rows),
  );
}

function correlationText(one) {
  if (!one) {
    return NOTHING;
  }
  const p = one.p === null || one.p === undefined ? "" : one.p < 0.001 ? ", p < 0.001" : `, p ${one.p.toFixed(3)}`;
  return one.low === null ? signed(one.value) : `${signed(one.value)} (${signed(one.low)} to ${signed(one.high)}${p})`;
}
