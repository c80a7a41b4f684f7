/* The attention weights of a sentence, one byte each, unpacked when the sentence is chosen.

   A byte is round(255 sqrt(weight)), at least 1 for a weight above zero, so 0 is an exact zero.
   The command that wrote the page has unpacked and counted all weights, so a block holds no more
   than its sizes say. */

const unpacked = new Map();

function sentenceBytes(number, name = "weights") {
  const id = `${name}-${number}`;
  if (!unpacked.has(id)) {
    unpacked.set(id, unpack(byId(id).textContent));
  }
  return unpacked.get(id);
}

async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* The map of one head on one sentence: its weights, and the tokens on both axes. */
async function headMap(number, head) {
  const bytes = await sentenceBytes(number);
  const sentence = report.sentences[number];
  const place = sentence.models[head.model].find(
    (entry) => entry.attention === head.attention && entry.layer === head.layer,
  );
  if (!place) {
    return null;
  }
  const { queries, keys } = place;
  const index = layersOf(head.model, head.attention)
    .find((layer) => layer.layer === head.layer)
    .heads.findIndex((other) => other.head === head.head);
  const ofHead = (all, start) => {
    const from = start + index * queries * keys;
    return all.subarray(from, from + queries * keys);
  };
  const hasGroups = place.groups !== undefined;
  const groups = hasGroups ? ofHead(await sentenceBytes(number, "groups"), place.groups) : null;
  return {
    queries,
    keys,
    bytes: ofHead(bytes, place.start),
    // None if only other heads of the layer have groups
    groups: groups?.some(Boolean) ? groups : null,
    isCausal: head.attention === "decoder-self",
    ...axes(sentence, head.attention),
  };
}

/* The tokens on both axes. Rows of cross-attention are the predicted tokens, not those read. */
function axes(sentence, attention) {
  if (attention === "encoder-self") {
    return { rows: sentence.source, columns: sentence.source };
  }
  return attention === "cross"
    ? { rows: sentence.targets, columns: sentence.source }
    : { rows: sentence.queries, columns: sentence.queries, predicted: sentence.targets };
}

function isFuture(map, query, key) {
  return map.isCausal && key > query;
}

/* The weight of a cell in words, with the largest error of rounding to a byte and to decimals. */
function weightText(map, query, key) {
  if (isFuture(map, query, key)) {
    return "future, masked";
  }
  const byte = map.bytes[query * map.keys + key];
  if (byte === 0) {
    return "exactly 0";
  }
  const weight = (byte / 255) ** 2;
  const digits = weight < 0.01 ? 5 : 3;
  const unit = 10 ** digits;
  const error = (byte + 0.25) / 255 ** 2 + 0.5 / unit;
  return `${weight.toFixed(digits)} ± ${(Math.ceil(error * unit) / unit).toFixed(digits)}`;
}
