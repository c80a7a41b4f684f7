/* Of classifiers: the words that pooling selects, of each class and text by text. */

const classes = { model: 0, head: "" };
const END = "</s>";
const MARKS = new Map([["<s>", "(start of text)"], [END, "(end of text)"]]);
const SHOWN_WEIGHT = 0.05; // from here on a word's weight stands behind it as a number

function setUpClasses() {
  if (report.data.kind !== "labelled") {
    return;
  }
  byId("classes").hidden = byId("classes-link").hidden = false;
  const titles = ["Model", "Pools", "Mapping", "Head", "Learned", "Density", "Tokens with a weight", "Entropy", "Largest weight"];
  const rows = report.models.flatMap((model) =>
    model.classification.pooling.flatMap((pooling) =>
      pooling.heads.map((head) => [
        model.name,
        pooling.name,
        pooling.mapping,
        head.head,
        learnedText(pooling, head.head),
        decimal(head.density),
        decimal(head.support, 1),
        decimal(head.entropy),
        decimal(head.confidence),
      ]),
    ),
  );
  byId("pooling-table").append(tableBox("Attention that pools", titles, rows));
  fillSelect(byId("classes-model"), modelOptions(), classes.model);
  byId("classes-model").addEventListener("change", (event) => {
    classes.model = Number(event.target.value);
    classes.head = "";
    showClasses();
  });
  byId("classes-head").addEventListener("change", (event) => {
    classes.head = event.target.value;
    showTexts();
  });
  showClasses();
}

function learnedText({ learned, values }, head) {
  const own = learned.map((name) => `${name} ${decimal(values[name][head] ?? values[name][0])}`);
  return own.join(", ") || NOTHING;
}

function showClasses() {
  const { pooling } = report.models[classes.model].classification;
  const heads = Math.max(...pooling.map((one) => one.heads.length));
  const choice = [["", "mean of all"], ...Array.from({ length: heads }, (_, head) => [head, head])];
  fillSelect(byId("classes-head"), choice, classes.head);
  byId("classes-head-label").hidden = heads === 1;
  byId("class-words").replaceChildren(...report.data.labels.map(classCard));
  showTexts();
}

function classCard(label, number) {
  const { confusion, pooling } = report.models[classes.model].classification;
  const texts = confusion[number].reduce((sum, count) => sum + count, 0);
  const right = texts ? `, ${percent(confusion[number][number] / texts, 1)} right` : "";
  const lists = pooling.map(({ name, words }) => {
    const rows = words[number].map(({ word, ratio, weight, count }) => [word, `${decimal(ratio, 1)} ×`, decimal(weight, 2), grouped(count)]);
    return rows.length
      ? tableBox(`Words of ${label}, ${name}`, [name, "Against even", "Weight", "Places"], rows)
      : hint("no word has 5 places");
  });
  return element("article", { class: "class" }, element("h4", {}, label), hint(`${plural(texts, "text")}${right}`), ...lists);
}

/* A text alone by its words, each as dark as its weight. */
function showTexts() {
  if (report.data.kind !== "labelled") {
    return;
  }
  weightLegend(byId("classes-legend"));
  const texts = report.sentences.map((sentence) => {
    const said = sentence.classified[classes.model];
    const gold = report.data.labels[sentence.label];
    const isRight = said.label === sentence.label;
    const label = report.data.labels[said.label];
    const verdict = report.data.own ? label : isRight ? "right" : `wrong: ${label}`;
    return element(
      "article",
      { class: "text" },
      hint(
        report.data.own ? "The model says " : `#${sentence.sentence} · ${gold} · `,
        element("strong", {}, verdict),
        ` (${percent(said.probability)})`,
      ),
      ...weightedParts(sentence, said),
    );
  });
  const none = hint(...withOptions("This analysis has no texts: fairseq-entmax analyze writes those that its option --sentences names."));
  byId("class-texts").replaceChildren(...(texts.length ? texts : [none]));
}

/* A text, or each half of a pair by its name. */
function weightedParts({ source }, said) {
  const weights = source.map((_, place) => tokenWeight(said, place));
  // A text may begin with the mark that ends others
  const half = source.indexOf(END, 1) + 1;
  const isPair = half > 0 && half < source.length;
  const parts = isPair ? [[0, half], [half, source.length]] : [[0, source.length]];
  const names = "premise" in said.pooling ? ["Premise", "Hypothesis"] : ["First text", "Second text"];
  return parts.map(([start, end], number) =>
    element(
      "p",
      { dir: "auto", class: "weighted" },
      isPair ? element("strong", { class: "half" }, `${names[number]}: `) : null,
      ...weightedTokens(source.slice(start, end), weights.slice(start, end)),
    ),
  );
}

function tokenWeight({ pooling }, place) {
  // A token is in one text of a pair, so one attention looks at it
  return Math.max(...Object.values(pooling).map((rows) => chosenWeight(rows, place)));
}

/* Marks of where a text begins and ends are no words: they are shown if they have a weight. */
function weightedTokens(tokens, weights) {
  const shown = tokens.map((token, place) => [token, place]).filter(
    ([token, place]) => weights[place] > 0 || !MARKS.has(token),
  );
  return shown.flatMap(([token, place], number) => [
    number ? spaceBefore(tokens, place) : "",
    weightedToken(MARKS.get(token) ?? token, weights[place]),
  ]);
}

function chosenWeight(rows, place) {
  const chosen = classes.head === "" ? rows : [rows[Number(classes.head)] ?? rows[0]];
  return chosen.reduce((sum, row) => sum + row[place], 0) / chosen.length;
}

/* Between words, as the marks of their parts say. */
function spaceBefore(tokens, place) {
  const isMarked = tokens.some((token) => token.startsWith("▁"));
  const goesOn = place > 0 && tokens[place - 1].endsWith("@@");
  const begins = isMarked ? tokens[place].startsWith("▁") || MARKS.has(tokens[place]) : !goesOn;
  return begins && place > 0 ? " " : "";
}

function weightedToken(token, weight) {
  const text = token.startsWith("▁") ? token.slice(1) || "▁" : token.replace(/@@$/, "");
  if (weight === 0) {
    return element("span", { class: "unselected", title: "exactly 0" }, text);
  }
  const colour = rampColour(Math.sqrt(weight));
  const made = element("span", { class: "selected-word", title: `weight ${decimal(weight)}` }, text);
  made.style.backgroundColor = css(colour);
  made.style.color = textOn(colour);
  if (weight >= SHOWN_WEIGHT) {
    made.append(element("small", {}, decimal(weight, 2)));
  }
  return made;
}
