/* Puts the page together. It is ready when the overview and the list are there. */

/* For the user's own sentences: says that the page is on these alone, and hides empty parts. */
function showOwn() {
  const { data, figures, search } = report;
  const few = data.sentences === 1 ? "one sentence" : plural(data.sentences, "sentence");
  document.querySelector("h1").textContent = `What every head does with ${few}`;
  const given = data.source_lang ? `${data.source_lang} → ${data.target_lang}, given` : "Given";
  byId("data-line").replaceChildren(
    `${given} to fairseq-entmax look, not part of a data set. `,
    element("strong", {}, `Every number here is from ${few} alone`),
    `: other sentences may give quite different numbers, so it says little about a head in general.`,
    search === null ? "" : ` The translation is the model's own: ${search}.`,
    data.own.words ? " Maps show words; numbers refer to the model’s tokens." : "",
  );
  byId("roles-hint").textContent = "No roles are named here: there are too few queries to say what a head does.";
  byId("role-words").replaceChildren(
    element("dt", {}, "none"),
    element(
      "dd",
      {},
      `Roles such as “copies” need a data set and fairseq-entmax analyze: the few queries of ${few} do not show what a head does elsewhere. Only closed gates and copy heads are named, because they are the same for every sentence.`,
    ),
  );
  byId("figures").hidden = !figures.length;
  document.querySelector("nav a[href='#figures']").parentElement.hidden = !figures.length;
}

function showSelected(head) {
  const roles = head.roles.length ? ` – ${head.roles.join("; ")}` : "";
  byId("selected-line").replaceChildren(element("strong", {}, headTitle(head)), roles);
}

showSummary();
showModels();
showMeanings();
showEvidence();
onSelect(showSelected);
onSelect(showDetails);
setUpHeads();
setUpMaps();
setUpFigures();
if (report.data.own) {
  showOwn();
}
// The list starts at its first row, wherever the preselected head is
selectHead(firstSelection());
byId("heads-scroll").scrollTop = 0;
systemTheme.addEventListener("change", () => {
  charts.forEach(({ redraw }) => redraw());
  if (selection.head) {
    showOverview();
    if (maps.heads.length) {
      renderMaps();
    }
  }
});
await setUpOverview();
document.documentElement.dataset.ready = "true";
