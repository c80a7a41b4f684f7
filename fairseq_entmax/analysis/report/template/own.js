/* A page on sentences of one's own: that it is on these alone, and without what a data set has. */

function showOwn() {
  const { data, figures } = report;
  if (!data.own) {
    return;
  }
  const few = data.sentences === 1 ? "one sentence" : plural(data.sentences, "sentence");
  document.querySelector("h1").textContent = `What every head does with ${few}`;
  const given = data.source_lang ? `${data.source_lang} → ${data.target_lang}, given` : "Given";
  const search = report.search === null ? "" : ` The translation is the model's own: ${report.search}.`;
  const words = data.own.words ? " Maps are of words, numbers of the model’s tokens." : "";
  byId("data-line").replaceChildren(
    `${given} to fairseq-entmax look, and no part of a data set. `,
    element("strong", {}, `Every number here is of ${few} alone`),
    `: of other sentences it may be quite another, so it says nothing yet of the head as such.${search}${words}`,
  );
  byId("classes-of-each").hidden = true;
  document
    .querySelector("#heads .hint a[href='#role-words']")
    ?.parentElement.replaceChildren("No roles are named here: the queries are too few to say what a head does.");
  byId("role-words").replaceChildren(
    element("dt", {}, "none"),
    element(
      "dd",
      {},
      `Roles such as “copies” are named of heads on a data set, by fairseq-entmax analyze: the few queries of ${few} do not show what a head does elsewhere. Only gates that are closed and copy heads are named, which every sentence has alike.`,
    ),
  );
  if (!figures.length) {
    byId("figures").hidden = true;
    document.querySelector("nav a[href='#figures']").parentElement.hidden = true;
  }
}
