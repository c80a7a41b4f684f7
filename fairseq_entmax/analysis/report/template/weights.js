/* The attention weights of a sentence: unpacked when it is chosen, one byte each.

   A byte is round(255 sqrt(weight)), at least 1 for a weight above zero, so 0 is an exact zero.
   Whoever wrote the page has inflated and counted all of them: no more than the sizes say come
   out of a block. */

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

/* What one head does in one sentence: its weights, and the tokens at both axes. */
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
    // Other heads of the layer may have some
    groups: groups?.some(Boolean) ? groups : null,
    isCausal: head.attention === "decoder-self",
    ...axes(sentence, head.attention),
  };
}

/* Rows of cross-attention carry the token that is predicted, not the one that is read. */
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

/* The weight of a cell in words, with how far rounding to a byte and to decimals may be off. */
function weightText(map, query, key) {
  if (isFuture(map, query, key)) {
    return "in the future";
  }
  const byte = map.bytes[query * map.keys + key];
  return byte === 0 ? "exactly 0" : timesWeight(byte, 1);
}

/* So many times the weight of a byte. */
function timesWeight(byte, count) {
  const weight = count * (byte / 255) ** 2;
  const digits = weight < 0.01 ? 5 : 3;
  const unit = 10 ** digits;
  const error = (count * (byte + 0.25)) / 255 ** 2 + 0.5 / unit;
  return `${weight.toFixed(digits)} ± ${(Math.ceil(error * unit) / unit).toFixed(digits)}`;
}
