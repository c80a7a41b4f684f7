/* Whether measures tell what a head is worth. */

function showEvidence() {
  if (!report.agreement.length) {
    byId("evidence").hidden = true;
    document.querySelector("nav a[href='#evidence']").parentElement.hidden = true;
    return;
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
  byId("evidence").append(
    hint(`Spearman\u2019s correlation over heads of each measure with how much worse the score is
      without the head (fairseq-entmax ablate); in brackets the 95 % interval. A measure
      whose interval includes 0 cannot be told from chance. \u201cWithin layers\u201d is the
      mean over layers, because relevance and gradient are shares of a layer.`),
    tableBox("Correlation with the harm of removing a head", ["Model, score: heads", "Heads", ...names], rows),
  );
}

function correlationText(one) {
  if (!one) {
    return NOTHING;
  }
  return one.low === null ? decimal(one.value, 2) : `${decimal(one.value, 2)} (${decimal(one.low, 2)} to ${decimal(one.high, 2)})`;
}
