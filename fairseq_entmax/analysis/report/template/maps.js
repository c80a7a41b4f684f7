/* Attention maps: the choice of sentence, models and heads. */

const maps = {
  sentence: 0,
  models: new Set(report.models.keys()),
  isLarge: true,
  attention: attentions[0],
  heads: [], // by model
  panels: [],
  cursor: null,
  turn: 0, // counts choices, so that maps made for an older one are not shown
};

function setUpMaps() {
  if (!report.sentences.length || !heads.length) {
    byId("maps-body").replaceChildren(
      element("p", {}, "This analysis has no attention maps: fairseq-entmax analyze writes them for the sentences named with --sentences."),
    );
    return;
  }
  setUpSentences();
  const boxes = report.models.map((model, number) => {
    const box = element("input", { type: "checkbox", value: number, checked: true });
    box.addEventListener("change", () => {
      maps.models[box.checked ? "add" : "delete"](number);
      renderMaps();
    });
    return element("label", {}, box, ` ${model.name}`);
  });
  byId("map-models").append(...boxes);
  for (const radio of document.querySelectorAll("input[name=view]")) {
    radio.addEventListener("change", () => showView(radio.value === "one"));
  }
  byId("map-attention").addEventListener("change", ({ target }) => {
    const { model, layer, head } = selection.head;
    const first = heads.find((other) => other.attention === target.value);
    selectHead(findHead(model, target.value, layer, head) ?? first);
  });
  onSelect(followSelection);
  addEventListener("resize", renderMaps);
}

function setUpSentences() {
  const options = report.sentences.map((sentence, number) => {
    const radio = element("input", { type: "radio", name: "sentence", value: number, checked: number === 0 });
    radio.addEventListener("change", () => {
      maps.sentence = number;
      maps.cursor = null;
      renderMaps();
    });
    const { source_lang: source, target_lang: target } = report.data;
    const isAlone = sentence.model === null || report.models.length === 1;
    const own = isAlone ? "" : ` by ${report.models[sentence.model].name}`;
    const line = (attributes, text) => (text ? element("span", { dir: "auto", ...attributes }, text) : null);
    return element(
      "label",
      {},
      radio,
      element("span", { class: "sentence-number" }, `#${sentence.sentence}${own}`),
      line({ lang: source }, sentence.sourceText),
      line({ lang: target, class: "target" }, sentence.targetText),
    );
  });
  byId("sentence-list").append(...options);
}

function showView(isLarge) {
  maps.isLarge = isLarge;
  document.querySelector(`input[name=view][value=${isLarge ? "one" : "all"}]`).checked = true;
  renderMaps();
}

/* Every panel shows its model's head with this layer and number. */
function followSelection(head) {
  maps.heads = report.models.map((_, model) => findHead(model, head.attention, head.layer, head.head));
  maps.attention = head.attention;
  maps.models.add(head.model);
  byId("map-models").querySelector(`input[value="${head.model}"]`).checked = true;
  renderMaps();
}

async function renderMaps() {
  fillSelect(byId("map-attention"), attentionOptions(), maps.attention);
  byId("readout").hidden = !maps.isLarge;
  showMapLegend();
  maps.turn += 1;
  const turn = maps.turn;
  const models = [...maps.models].sort((a, b) => a - b);
  const made = await Promise.all(models.map(maps.isLarge ? largePanel : smallMaps));
  if (turn !== maps.turn) {
    return;
  }
  const place = byId("map-panels");
  const isMapFocused = document.activeElement.matches("svg.map");
  const focused = [...place.querySelectorAll("svg.map")].indexOf(document.activeElement);
  maps.panels = made.filter((panel) => panel.map);
  place.replaceChildren(element("div", { class: "panels" }, ...made.map((panel) => panel.element)));
  if (isMapFocused) {
    place.querySelectorAll("svg.map")[focused]?.focus();
  }
  pointMaps(maps.cursor);
  place.dataset.shown = `${maps.sentence} ${maps.isLarge} ${selection.head?.key}`;
}

function showMapLegend() {
  const { models } = report.sentences[maps.sentence];
  const hasGroups = [...maps.models].some((model) =>
    models[model].some(({ attention, groups }) => attention === maps.attention && groups !== undefined),
  );
  weightLegend(byId("map-legend"), [
    ["zero", "exactly 0"],
    ...(maps.attention === "decoder-self" ? [["future", "future, masked"]] : []),
    ...(hasGroups ? [["segment", "neighbours with equal weights; the same mark in a row: equal weights in separate places"]] : []),
  ]);
  const rows = {
    "encoder-self": "Rows are the attending tokens, columns the attended ones.",
    "decoder-self": "Rows are the tokens that the decoder has read, columns the attended ones.",
    "cross": "Rows are the predicted tokens, columns the source tokens.",
  };
  byId("map-hint").textContent = `${rows[maps.attention]} The scale follows the square root of the weight, so its middle is 0.25.`;
}

/* A panel with one head of a model, and selects for its layer and number. */
async function largePanel(model) {
  const shown = maps.heads[model];
  const map = shown ? await headMap(maps.sentence, shown) : null;
  const layers = layersOf(model, maps.attention).filter((layer) => layer.heads.length);
  const here = layers.find((layer) => layer.layer === shown?.layer);
  const [layer, head] = [element("select"), element("select")];
  const choices = (items) => items.map((item) => [item, item]);
  fillSelect(layer, choices(layers.map((one) => one.layer)), shown?.layer ?? "");
  fillSelect(head, choices((here?.heads ?? []).map((one) => one.head)), shown?.head ?? "");
  const choose = () => {
    const first = heads.find((one) => one.model === model && one.attention === maps.attention && one.layer === Number(layer.value));
    maps.heads[model] = findHead(model, maps.attention, Number(layer.value), Number(head.value)) ?? first;
    renderMaps();
  };
  layer.addEventListener("change", choose);
  head.addEventListener("change", choose);
  const columns = Math.max(1, Math.min(maps.models.size, Math.floor(byId("map-panels").clientWidth / 430)));
  const space = byId("map-panels").clientWidth / columns - 24;
  const label = shown && `Attention map of ${headTitle(shown)}. Arrow keys move from weight to weight.`;
  const svg = map && largeMap(map, label, space, pointMaps);
  const made = element(
    "div",
    { class: "panel" },
    element("h3", {}, report.models[model].name),
    element("div", { class: "controls" }, element("label", {}, "Layer ", layer), element("label", {}, "Head ", head)),
    element("p", { class: "roles" }, !shown ? "this model has no such head" : map ? shown.roles.join("; ") || NO_ROLE : "this text is of another model"),
    svg && element("div", { class: "scroll" }, svg),
  );
  return { element: made, model, shown, map, svg };
}

/* A panel with small maps of all heads of a model, a line per layer. */
async function smallMaps(model) {
  const rows = layersOf(model, maps.attention).map(async (layer) => {
    const cells = layer.heads.map(async ({ head }) => {
      const own = findHead(model, maps.attention, layer.layer, head);
      const map = await headMap(maps.sentence, own);
      const title = `layer ${layer.layer}, head ${head}: ${own.roles.join(", ") || NO_ROLE}`;
      const button = element("button", { type: "button", title, "aria-label": title, "data-head": own.key });
      if (map) {
        button.append(element("img", { src: weightsImage(map), alt: "" }));
      }
      button.addEventListener("click", () => {
        showView(true);
        selectHead(own);
      });
      return button;
    });
    return element("div", { class: "thumbnails" }, `layer ${layer.layer}`, ...(await Promise.all(cells)));
  });
  return { element: element("div", { class: "panel" }, element("h3", {}, report.models[model].name), ...(await Promise.all(rows))) };
}

/* Shows the cursor at the same place in all panels, and the weights there in the line above them. */
function pointMaps(cursor) {
  maps.cursor = cursor;
  maps.panels.forEach(({ svg }) => svg.showCursor(cursor));
  const readout = byId("readout");
  const map = maps.panels[0]?.map;
  if (!cursor || !map) {
    readout.textContent = "To read weights, point at a map, or move to it with Tab and use the arrow keys.";
    return;
  }
  const { query, key } = cursor;
  const predicted = map.predicted ? ` (predicting “${map.predicted[query]}”)` : "";
  const verb = maps.attention === "cross" ? "predicting " : "";
  const weights = maps.panels.map(({ model, map: other, shown }) =>
    element(
      "span",
      { "data-model": model },
      // The number first: a long name may be cut off
      element("strong", {}, weightText(other, query, key)),
      element("span", { class: "name", title: headTitle(shown) }, ` ${shown.layer}.${shown.head} ${report.models[model].name}`),
    ),
  );
  readout.replaceChildren(
    element("span", { class: "tokens" }, `${verb}“${map.rows[query]}”${predicted} → “${map.columns[key]}”`),
    element("span", { class: "weights" }, ...weights),
  );
}
