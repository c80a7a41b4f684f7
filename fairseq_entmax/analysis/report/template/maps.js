/* Attention maps: which sentence, which models, which heads. */

const maps = {
  sentence: 0,
  models: new Set(report.models.keys()),
  isLarge: true,
  attention: attentions[0],
  layer: "",
  isLinked: true,
  heads: [], // by model
  panels: [],
  cursor: null,
  turn: 0, // rises with every choice: what was begun for an older one is not shown
};

/* What the search looks through, by the kind of the data. */
const SEARCHED = {
  pairs: "words of the source or the target",
  text: "words of the sample",
  labelled: "words of the text",
};

function setUpMaps() {
  const missing = whyNoMaps();
  if (missing) {
    byId("maps-body").replaceChildren(element("p", {}, missing));
    return;
  }
  setUpSentences();
  setUpModelChoice();
  setUpViewChoice();
  onSelect(followSelection);
  onTheme(renderMaps);
  let width = 0;
  new ResizeObserver(([entry]) => {
    // Only the width matters: the maps change the height themselves
    if (entry.contentRect.width !== width && width !== 0) {
      drawPanels();
    }
    width = entry.contentRect.width;
  }).observe(byId("map-panels"));
}

function whyNoMaps() {
  if (!report.sentences.length || !heads.length) {
    return "This analysis has no attention maps: fairseq-entmax analyze writes those of the sentences that its option --sentences names.";
  }
  return "DecompressionStream" in window
    ? ""
    : "This browser is too old to unpack the attention maps: one of 2023 or later can.";
}

function setUpSentences() {
  const options = report.sentences.map((sentence, number) => {
    const radio = element("input", { type: "radio", name: "sentence", value: number });
    radio.checked = number === maps.sentence;
    radio.addEventListener("change", () => chooseSentence(number));
    const { source_lang: source, target_lang: target } = report.data;
    const isAlone = sentence.model === null || report.models.length === 1;
    const own = isAlone ? "" : ` by ${report.models[sentence.model].name}`;
    const label = element(
      "label",
      {},
      radio,
      element("span", { class: "sentence-number" }, `#${sentence.sentence}${own}`),
      textLine({ lang: source }, sentence.sourceText),
      textLine({ lang: target, class: "target" }, sentence.targetText),
    );
    const text = `#${sentence.sentence}${own} ${sentence.sourceText} ${sentence.targetText}`;
    return { label, radio, text: plain(text) };
  });
  byId("sentence-list").append(...options.map(({ label }) => label));
  const search = byId("sentence-search");
  search.placeholder = SEARCHED[report.data.kind] ?? SEARCHED.pairs;
  const find = () => {
    const words = plain(search.value).split(/\s+/).filter(Boolean);
    options.forEach(({ label, text }) => {
      label.hidden = !words.every((word) => text.includes(word));
    });
    const found = options.filter(({ label }) => !label.hidden).length;
    byId("sentence-count").textContent = `${found} of ${plural(options.length, "sentence")}`;
  };
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      options.find(({ label }) => !label.hidden)?.radio.click();
    }
  });
  find();
}

/* A side of a sentence, where it has one. */
function textLine(attributes, text) {
  return text ? element("span", { dir: "auto", ...attributes }, text) : null;
}

/* Without accents and capitals, so that Moises finds Moisés. */
function plain(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
}

function chooseSentence(number) {
  maps.sentence = number;
  maps.cursor = null;
  renderMaps();
}

function setUpModelChoice() {
  const boxes = report.models.map((model, number) => {
    const box = element("input", { type: "checkbox", value: number, checked: true });
    box.addEventListener("change", () => {
      maps.models[box.checked ? "add" : "delete"](number);
      renderMaps();
    });
    return element("label", {}, box, ` ${model.name}`);
  });
  byId("map-models").append(...boxes);
}

function setUpViewChoice() {
  for (const radio of document.querySelectorAll("input[name=view]")) {
    radio.addEventListener("change", () => showView(radio.value === "one"));
  }
  fillSelect(byId("map-attention"), attentionOptions(), maps.attention);
  byId("map-attention").addEventListener("change", (event) => chooseAttention(event.target.value));
  byId("map-layer").addEventListener("change", (event) => {
    maps.layer = event.target.value;
    renderMaps();
  });
  byId("map-linked-label").hidden = report.models.length === 1;
  byId("map-linked").addEventListener("change", (event) => {
    maps.isLinked = event.target.checked;
    selectHead(selection.head);
  });
}

function showView(isLarge) {
  maps.isLarge = isLarge;
  const value = isLarge ? "one" : "all";
  document.querySelector(`input[name=view][value=${value}]`).checked = true;
  renderMaps();
}

function chooseAttention(attention) {
  const { model, layer, head } = selection.head;
  const first = heads.find((other) => other.attention === attention);
  selectHead(findHead(model, attention, layer, head) ?? first);
}

/* The panel of the selected head's model shows it; the others too, or keep their place. */
function followSelection(head) {
  maps.heads = report.models.map((_, model) => {
    const kept = maps.heads[model];
    const { layer, head: number } = model === head.model || maps.isLinked || !kept ? head : kept;
    return findHead(model, head.attention, layer, number);
  });
  maps.attention = head.attention;
  maps.models.add(head.model);
  byId("map-models").querySelector(`input[value="${head.model}"]`).checked = true;
  renderMaps();
}

async function renderMaps() {
  fillSelect(byId("map-attention"), attentionOptions(), maps.attention);
  const layers = [...new Set(report.layers.filter((layer) => layer.attention === maps.attention).map((layer) => layer.layer))];
  maps.layer = layers.includes(Number(maps.layer)) ? maps.layer : "";
  fillSelect(byId("map-layer"), [["", "all"], ...layers.map((layer) => [layer, layer])], maps.layer);
  byId("map-layer-label").hidden = maps.isLarge;
  byId("map-linked-label").hidden = !maps.isLarge || report.models.length === 1;
  byId("readout").hidden = !maps.isLarge;
  showMapLegend();
  maps.turn += 1;
  const turn = maps.turn;
  const show = await (maps.isLarge ? preparedPanels() : preparedThumbnails());
  if (turn !== maps.turn) {
    return;
  }
  show();
  byId("map-panels").dataset.shown = `${maps.sentence} ${maps.isLarge} ${selection.head?.key}`;
}

function showMapLegend() {
  const swatches = [maps.isLarge ? ["zero", "exactly 0"] : ["zero plain-zero", "exactly 0"]];
  if (maps.attention === "decoder-self") {
    swatches.push(["future", "in the future, not seen"]);
  }
  if (hasGroups()) {
    swatches.push(["segment", "equal weights side by side, in one box"]);
    swatches.push(["mark", "the same mark in a row: equal weights apart"]);
  }
  legend(byId("map-legend"), ["above 0", "1"], swatches);
  const rows = {
    "encoder-self": "Rows are the tokens that look, columns those that are looked at.",
    "decoder-self": "Rows are the tokens that the decoder has read, columns those that they look at.",
    "cross": "Rows are the tokens that are predicted, columns the source.",
  };
  byId("map-hint").textContent = `${rows[maps.attention]} The middle of the scale is 0.25: it runs with the square root of the weight.`;
}

/* Whether some head of what may be shown has groups of equal weights. */
function hasGroups() {
  const { models } = report.sentences[maps.sentence];
  return shownModels().some((model) =>
    models[model].some(({ attention, groups }) => attention === maps.attention && groups !== undefined),
  );
}

function shownModels() {
  return [...maps.models].sort((a, b) => a - b);
}

/* Unpacks what is to be shown; gives back what shows it. */
async function preparedThumbnails() {
  const { sentence, attention, layer } = maps;
  const choose = (head) => {
    if (head) {
      showView(true);
      selectHead(head);
    }
  };
  const made = await thumbnailCards(sentence, shownModels(), attention, layer, choose);
  return () => {
    maps.panels = [];
    byId("map-panels").replaceChildren(made);
  };
}

async function preparedPanels() {
  const { sentence, attention } = maps;
  const models = shownModels();
  const shown = models.map((model) => maps.heads[model]);
  const found = await Promise.all(shown.map((head) => (head ? headMap(sentence, head) : null)));
  return () => {
    // Panels stay while their models do: who is in one of their selects stays there
    if (models.join() !== maps.panels.map((panel) => panel.model).join() || !models.length) {
      maps.panels = models.map((model) => largePanel(model, choosePlace, pointMaps));
      const made = maps.panels.map((panel) => panel.element);
      byId("map-panels").replaceChildren(element("div", { class: "panels" }, ...made));
    }
    maps.panels.forEach((panel, place) => showInPanel(panel, shown[place], found[place], attention));
    pointMaps(maps.cursor);
  };
}

function drawPanels() {
  maps.panels.filter((panel) => panel.map).forEach(drawPanel);
  pointMaps(maps.cursor);
}

/* A layer chosen without a head of that number gets its first. */
function choosePlace(model, layer, number) {
  const present = heads.filter(
    (head) => head.model === model && head.attention === maps.attention && head.layer === layer,
  );
  selectHead(present.find((head) => head.head === number) ?? present[0]);
}

/* Every panel shows the cursor at the same place, and the line above them the weights there. */
function pointMaps(cursor) {
  maps.cursor = cursor;
  const drawn = maps.panels.filter((panel) => panel.map && panel.layout);
  drawn.forEach((panel) => drawCursor(panel, cursor));
  showReadout(drawn, cursor);
}

function showReadout(drawn, cursor) {
  const readout = byId("readout");
  const map = drawn[0]?.map;
  if (!cursor || !map) {
    const use = "Point at a map, or go to it by Tab and use the arrow keys, to read its weights.";
    readout.replaceChildren(element("span", {}, map ? use : "Choose a model."));
    return;
  }
  const { query, key } = cursor;
  const predicted = map.predicted ? ` (predicting “${map.predicted[query]}”)` : "";
  const verb = maps.attention === "cross" ? "predicting " : "";
  const tokens = `${verb}“${map.rows[query]}”${predicted} → “${map.columns[key]}”`;
  const weights = drawn.map(({ model, map: other, shown }) =>
    element(
      "span",
      { "data-model": model },
      // The number first: a long name may be cut off
      element("strong", {}, weightText(other, query, key)),
      element("span", { class: "name", title: headTitle(shown) }, ` ${shown.layer}.${shown.head} ${report.models[model].name}`),
    ),
  );
  const together = drawn.flatMap(({ model, map: other }) => {
    const text = groupText(other, query, key);
    const name = drawn.length > 1 ? `${report.models[model].name}: ` : "";
    return text ? [element("span", { "data-group": model, "title": name + text }, name + text)] : [];
  });
  const isGrouped = drawn.some(({ map: other }) => other.groups);
  readout.classList.toggle("grouped", isGrouped);
  readout.replaceChildren(
    element("span", { class: "tokens" }, tokens),
    element("span", { class: "weights" }, ...weights),
    isGrouped ? element("span", { class: "together" }, ...together) : "",
  );
}
