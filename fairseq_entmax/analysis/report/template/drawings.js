/* The overview and the maps as they are shown, as figures for a paper. */

function setUpDrawings() {
  if (!canDraw() || !heads.length) {
    return;
  }
  document.querySelector("#overview .controls").append(saveButtons("the overview", FORMATS, saveGrid));
  if (byId("map-legend")) {
    byId("map-legend").after(saveButtons("the attention maps", FORMATS, saveMaps));
  }
}

/* In a name of a file, as the command writes it. */
function gridName(measure) {
  const words = measure.replaceAll("@-", "_minus").replaceAll("@+", "_plus");
  return `grid_${words.replace(/[^A-Za-z0-9_]/g, "_")}`;
}

function saveGrid(format) {
  const measure = measureNamed(overview.measure);
  const [low, high] = measureRange(measure);
  const isScale = high > low;
  const digits = cellDigits(low, high);
  const rows = heads.map((head) => ({
    model: report.models[head.model].name,
    attention: head.attention,
    layer: head.layer,
    head: head.head,
    value: head.values[measure.name],
    text: decimal(head.values[measure.name], digits),
    copies: head.copies,
  }));
  const nothing = { ...rows[0], value: null, text: "", copies: false };
  const legend = { title: measure.title, orient: "top", gradientLength: 120, titleLimit: 0 };
  const spec = filled(drawings.grid, {
    rows: [...rows, ...absentRows(rows, "model", "attention", nothing)],
    domain: isScale ? [low, high] : [low - 1, low + 1],
    middle: String(isScale ? low + drawings.lightInkFrom * (high - low) : low + 1),
    legend: isScale ? { ...legend, values: [low, high], format: digits === 2 ? ".3~f" : ".2~g" } : null,
    description: `${measure.title} of every head: ${measure.meaning}.`,
  });
  return saveDrawing(gridName(measure.name), format, spec, drawings.paper);
}

/* Rows of nothing for panels without any: Vega-Lite fills a grid panel by panel, and those behind
   a missing one would move up. */
function absentRows(rows, down, across, nothing) {
  const there = new Set(rows.map((row) => JSON.stringify([row[down], row[across]])));
  const values = (field) => [...new Set(rows.map((row) => row[field]))];
  return values(down)
    .flatMap((one) => values(across).map((other) => ({ ...nothing, [down]: one, [across]: other })))
    .filter((row) => !there.has(JSON.stringify([row[down], row[across]])));
}

async function saveMaps(format) {
  const { sentence: number, attention } = maps;
  const sentence = report.sentences[number];
  const isOwn = sentence.model !== null && sentence.model !== undefined;
  const tag = `${sentence.sentence}${isOwn ? `by${sentence.model}` : ""}_${attention}`;
  const made = maps.isLarge ? await shownHeads(number) : await shownLayers(number);
  if (!made.shown.length) {
    return;
  }
  const [{ map }] = made.shown;
  const rows = made.shown.flatMap(({ panel, head, map: own }) => mapRows(panel, head, own));
  const nothing = { query: 0, from: 0, to: 0, weight: null, mark: null };
  const values = {
    description: `${attention} on sentence ${sentence.sentence}: rows look at columns. Hatched is exactly 0.`,
    rows: maps.isLarge ? rows : [...rows, ...absentRows(rows, "panel", "head", nothing)],
    panels: made.panels,
    ...axisValues("across", map.columns),
    ...axisValues("down", map.rows),
  };
  const sized = maps.isLarge ? largeSizes(made.panels, map) : smallSizes(made.panels, map);
  const template = maps.isLarge ? drawings.map : drawings.everyHead;
  const { layer, head } = selection.head;
  const name = maps.isLarge ? `map_${tag}_${layer}_${head}` : `heads_${tag}`;
  await saveDrawing(name, format, filled(template, { ...values, ...sized, heads: made.heads }), drawings.paper);
}

/* A panel for each model: the head that it shows. */
async function shownHeads(number) {
  const models = shownModels().filter((model) => maps.heads[model]);
  const isLinked = new Set(models.map((model) => `${maps.heads[model].layer}.${maps.heads[model].head}`)).size === 1;
  const shown = await Promise.all(
    models.map(async (model) => {
      const head = maps.heads[model];
      const place = `layer ${head.layer}, head ${head.head}`;
      const { name } = report.models[model];
      const panel = report.models.length === 1 || (isLinked && models.length === 1) ? place : isLinked ? name : `${name}: ${place}`;
      return { panel, map: await headMap(number, head) };
    }),
  );
  const kept = shown.filter(({ map }) => map);
  return { shown: kept, panels: kept.map(({ panel }) => panel), heads: [] };
}

/* A line of panels for each layer of each model. */
async function shownLayers(number) {
  const models = shownModels();
  const shown = [];
  for (const model of models) {
    for (const layer of layersOf(model, maps.attention)) {
      if (maps.layer !== "" && layer.layer !== Number(maps.layer)) {
        continue;
      }
      const title = `layer ${layer.layer}`;
      const panel = models.length === 1 ? title : `${report.models[model].name} ${title}`;
      for (const { head } of layer.heads) {
        const map = await headMap(number, findHead(model, maps.attention, layer.layer, head));
        shown.push({ panel, head, map });
      }
    }
  }
  const kept = shown.filter(({ map }) => map);
  return {
    shown: kept,
    panels: [...new Set(kept.map(({ panel }) => panel))],
    heads: [...new Set(kept.map(({ head }) => head))].sort((a, b) => a - b),
  };
}

/* A row for each run of neighbours of equal weight, each key alone, and each exact zero. */
function mapRows(panel, head, map) {
  const rows = [];
  const add = (query, from, to, byte, mark) =>
    rows.push({ panel, head, query, from, to, weight: Number(((byte / 255) ** 2).toPrecision(6)), mark });
  for (let query = 0; query < map.queries; query += 1) {
    const byteAt = (key) => map.bytes[query * map.keys + key];
    for (let key = 0; key < map.keys; key += 1) {
      if (isFuture(map, query, key)) {
        continue;
      }
      if (byteAt(key) === 0 || !map.groups) {
        add(query, key, key + 1, byteAt(key), null);
      }
    }
    for (const { from, to, mark } of map.groups ? segmentsOf(map, query) : []) {
      add(query, from, to, byteAt(from), mark === null ? null : mark % drawings.marks);
    }
  }
  return rows;
}

function axisValues(side, tokens) {
  const printed = tokens.map((token) => token.replaceAll("▁", "_"));
  return {
    [`${side}Domain`]: [0, tokens.length],
    [`${side}Values`]: tokens.map((_, place) => place + 0.5),
    [`${side}Tokens`]: `${expressionOf(printed)}[floor(datum.value)]`,
  };
}

function largeSizes(panels, map) {
  const [width, height] = [drawings.weight * map.keys, drawings.weight * map.queries];
  return { width, height, columns: sideBySide(panels.length, width + drawings.tokens, drawings.width), lines: labelsInLines(panels, width) };
}

function smallSizes(panels, map) {
  const [width, height] = [drawings.smallWeight * map.keys, drawings.smallWeight * map.queries];
  return { width, height, lines: labelsInLines(panels, drawings.flat) };
}
