/* The report's data, its heads as one list, and how numbers are written. */

const report = JSON.parse(document.getElementById("report-data").textContent);
const ATTENTION_TITLES = {
  "encoder-self": "Encoder self-attention",
  "decoder-self": "Decoder self-attention",
  "cross": "Cross-attention",
};
const NOTHING = "–";
const NO_ROLE = report.data.own ? "roles are not named of so few queries" : "no role found";

/* Every head once, in the order of the analysis, with its place. */
const heads = report.layers.flatMap((layer) =>
  layer.heads.map((head) => ({
    ...head,
    model: layer.model,
    attention: layer.attention,
    layer: layer.layer,
    mapping: layer.mapping,
    key: headKey(layer.model, layer.attention, layer.layer, head.head),
  })),
);
/* What stands alone, and is listed; the others are one of many, for each offset such as. */
const loneMeasures = report.measures.filter((measure) => !measure.group);
const own = (value, key) => (value && Object.hasOwn(value, key) ? value[key] : null);
for (const measure of report.measures.filter(({ name }) => heads.length && !(name in heads[0].values))) {
  for (const head of heads) {
    head.values[measure.name] = measure.place.reduce(own, head);
  }
}
const headByKey = new Map(heads.map((head) => [head.key, head]));
const attentions = report.attentions.filter((attention) =>
  report.layers.some((layer) => layer.attention === attention),
);

function headKey(model, attention, layer, head) {
  return `${model}/${attention}/${layer}/${head}`;
}

function findHead(model, attention, layer, head) {
  return headByKey.get(headKey(model, attention, layer, head));
}

function layersOf(model, attention) {
  return report.layers.filter((layer) => layer.model === model && layer.attention === attention);
}

function measureNamed(name) {
  return report.measures.find((measure) => measure.name === name);
}

/* "entmax · encoder-self · layer 2 · head 5" */
function headTitle(head) {
  const place = `${head.attention} · layer ${head.layer} · head ${head.head}`;
  return `${report.models[head.model].name} · ${place}`;
}

/* Only what is 0 or 1 reads 0 or 1: a density of all but one key is not that of all. */
function decimal(value, digits = 3) {
  if (value === null || value === undefined) {
    return NOTHING;
  }
  const text = value.toFixed(digits);
  const unit = 10 ** -digits;
  if (value < 1 && Number(text) === 1) {
    return `>${(1 - unit).toFixed(digits)}`;
  }
  if (value < 0 && Number(text) === 0) {
    return `>−${unit.toFixed(digits)}`;
  }
  return value > 0 && Number(text) === 0 ? `<${unit.toFixed(digits)}` : text.replace("-", "−");
}

function grouped(value) {
  return value === null || value === undefined ? NOTHING : value.toLocaleString("en");
}

function plural(count, noun) {
  return `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function percent(share) {
  return share === null || share === undefined ? NOTHING : `${Math.round(100 * share)} %`;
}

/* "+1", "−1", "0" */
function offsetText(offset) {
  const number = Number(offset);
  return number > 0 ? `+${number}` : String(number).replace("-", "−");
}
