/* The report's data, all heads as one list, the selected head, and the formatting of numbers. */

const report = JSON.parse(document.getElementById("report-data").textContent);
const NOTHING = "–";
const NO_ROLE = report.data.own ? "too few queries to name roles" : "no role found";

/* Every head once, in the order of the analysis, with its place. */
const heads = report.layers.flatMap(({ heads: own, ...layer }) =>
  own.map((head) => ({ ...head, ...layer, key: headKey(layer.model, layer.attention, layer.layer, head.head) })),
);
/* Measures that stand alone and are listed. The others belong to a group, such as one per offset. */
const loneMeasures = report.measures.filter((measure) => !measure.group);
const headByKey = new Map(heads.map((head) => [head.key, head]));
const attentions = report.attentions.filter((attention) =>
  report.layers.some((layer) => layer.attention === attention),
);
const selection = { head: null, listeners: [] };

function headKey(model, attention, layer, head) {
  return `${model}/${attention}/${layer}/${head}`;
}

function findHead(model, attention, layer, head) {
  return headByKey.get(headKey(model, attention, layer, head));
}

function layersOf(model, attention) {
  return report.layers.filter((layer) => layer.model === model && layer.attention === attention);
}

/* "entmax · encoder-self · layer 2 · head 5" */
function headTitle(head) {
  const place = `${head.attention} · layer ${head.layer} · head ${head.head}`;
  return `${report.models[head.model].name} · ${place}`;
}

function onSelect(listener) {
  selection.listeners.push(listener);
}

function selectHead(head) {
  if (head) {
    selection.head = head;
    selection.listeners.forEach((listener) => listener(head));
  }
}

/* The head with the largest confidence (or else relevance): its map is the easiest to read first. */
function firstSelection() {
  const sure = (head) => head.values.confidence ?? head.values.relevance ?? -1;
  return heads.reduce((best, head) => (best && sure(best) >= sure(head) ? best : head), undefined);
}

/* Only 0 and 1 themselves read 0 and 1: a density just below 1 must not look like 1. */
function decimal(value, digits = 3) {
  if (value === null || value === undefined) {
    return NOTHING;
  }
  const text = value.toFixed(digits);
  const unit = 10 ** -digits;
  if (value < 1 && Number(text) === 1) {
    return `>${(1 - unit).toFixed(digits)}`;
  }
  if (value !== 0 && Number(text) === 0) {
    return `${value > 0 ? "<" : ">−"}${unit.toFixed(digits)}`;
  }
  return text.replace("-", "−");
}

function grouped(value) {
  return value === null || value === undefined ? NOTHING : value.toLocaleString("en");
}

function plural(count, noun) {
  return `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function percent(share, digits = 0) {
  return share === null || share === undefined ? NOTHING : `${(100 * share).toFixed(digits)} %`;
}
