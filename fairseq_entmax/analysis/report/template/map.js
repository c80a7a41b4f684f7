/* One attention map as SVG: an image with a pixel per weight, and hatching over exact zeros. It is
   the only picture that Vega does not draw: Vega takes seconds for the thousands of cells of a long
   text, too long for a pointer that moves. */

const CELL = { smallest: 12, largest: 28 };
const LONGEST_LABEL = 16;
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
/* Marks of a row's groups that are in several places. */
const GROUP_MARKS = ["●", "▲", "■", "◆", "▼", "○", "△", "□", "◇", "▽"];

/* An image of the weights; those in the future stay transparent. */
function weightsImage(map) {
  const canvas = element("canvas", { width: map.keys, height: map.queries });
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.keys, map.queries);
  const zero = systemTheme.matches ? [44, 46, 51] : [233, 233, 230];
  const colours = Array.from({ length: 256 }, (_, byte) => (byte ? rampColour(byte / 255) : zero));
  map.bytes.forEach((byte, place) => {
    const isHidden = isFuture(map, Math.floor(place / map.keys), place % map.keys);
    image.data.set([...colours[byte], isHidden ? 0 : 255], 4 * place);
  });
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/* The outlines of all runs of exact zeros, as one path. */
function zerosPath(map, cell) {
  const runs = [];
  for (let query = 0; query < map.queries; query += 1) {
    const seen = map.isCausal ? query + 1 : map.keys;
    for (let key = 0; key < seen; key += 1) {
      const from = key;
      while (key < seen && map.bytes[query * map.keys + key] === 0) {
        key += 1;
      }
      if (key > from) {
        runs.push(`M${from * cell} ${query * cell}h${(key - from) * cell}v${cell}h${(from - key) * cell}z`);
      }
    }
  }
  return runs.join("");
}

/* The segments of a row from left to right; `to` is exclusive. Neighbours in one group of exactly equal
   weights are one segment. If a group is in several places, its segments have the same mark. */
function segmentsOf(map, query) {
  const segments = [];
  for (let key = 0; key < map.keys; key += 1) {
    const place = query * map.keys + key;
    const group = map.groups?.[place] ?? 0;
    const last = segments.at(-1);
    if (group !== 0 && last?.to === key && last.group === group) {
      last.to = key + 1;
    } else if (map.bytes[place] !== 0) {
      segments.push({ from: key, to: key + 1, group, mark: null });
    }
  }
  const groups = segments.map(({ group }) => group).filter(Boolean);
  const apart = [...new Set(groups.filter((group, place) => groups.indexOf(group) !== place))];
  apart.sort((a, b) => a - b).forEach((group, mark) => {
    segments.filter((one) => one.group === group).forEach((one) => Object.assign(one, { mark: GROUP_MARKS[mark % GROUP_MARKS.length] }));
  });
  return segments;
}

/* The segments of a key's group; none for a key without a group. */
function groupAt(map, query, key) {
  const group = map.groups?.[query * map.keys + key];
  return group ? segmentsOf(map, query).filter((segment) => segment.group === group) : [];
}

/* A map with its tokens on both axes, `space` pixels wide; `point` is called with the cell pointed at. */
function largeMap(map, label, space, point) {
  const ruler = element("canvas").getContext("2d");
  ruler.font = `12px ${FONT}`;
  const short = (token) => ([...token].length > LONGEST_LABEL ? `${[...token].slice(0, LONGEST_LABEL).join("")}…` : token);
  const widest = (tokens) => Math.ceil(Math.max(...tokens.map((token) => ruler.measureText(short(token)).width))) + 12;
  const [left, top] = [widest(map.rows), widest(map.columns)];
  const fitting = Math.floor((space - left - 2) / map.keys);
  const cell = Math.max(CELL.smallest, Math.min(CELL.largest, fitting));
  const [width, height] = [map.keys * cell, map.queries * cell];
  const box = { x: 0, y: 0, width, height };
  const size = Math.min(12, cell - 1);
  const rows = map.rows.map((token, query) =>
    svgElement("text", { x: -6, y: (query + 0.5) * cell, "text-anchor": "end", "font-size": size }, short(token)),
  );
  const columns = map.columns.map((token, key) =>
    svgElement("text", { transform: `translate(${(key + 0.5) * cell} -6) rotate(-90)`, "font-size": size }, short(token)),
  );
  const cursor = svgElement("g", { class: "cursor" });
  const svg = svgElement(
    "svg",
    {
      class: "map", tabindex: "0", role: "application", "aria-roledescription": "attention map", "aria-label": label,
      width: left + width + 2, height: top + height + 2, viewBox: `${-left} ${-top} ${left + width + 2} ${top + height + 2}`,
      "data-cell": cell, "data-left": left, "data-top": top,
    },
    svgElement("image", { ...box, href: weightsImage(map), preserveAspectRatio: "none" }),
    svgElement("path", { class: "zeros", d: zerosPath(map, cell) }),
    ...segmentMarks(map, cell),
    ...rows,
    ...columns,
    cursor,
  );
  svg.showCursor = (place) => {
    [...rows, ...columns].forEach((text) => text.classList.remove("marked"));
    const isThere = place && place.query < map.queries && place.key < map.keys;
    cursor.replaceChildren(...(isThere ? cursorFrames(map, cell, place) : []));
    if (isThere) {
      rows[place.query].classList.add("marked");
      columns[place.key].classList.add("marked");
    }
  };
  const pointed = (event) => {
    const frame = svg.getBoundingClientRect();
    const key = Math.floor((event.clientX - frame.left - left) / cell);
    const query = Math.floor((event.clientY - frame.top - top) / cell);
    if (query >= 0 && key >= 0 && query < map.queries && key < map.keys) {
      point({ query, key });
    }
  };
  svg.addEventListener("pointermove", pointed);
  svg.addEventListener("pointerdown", pointed);
  svg.addEventListener("keydown", (event) => moveCursor(map, event, point));
  return svg;
}

function segmentMarks(map, cell) {
  if (!map.groups) {
    return [];
  }
  return map.rows.flatMap((_, query) =>
    segmentsOf(map, query).flatMap(({ from, to, mark }) => {
      const style = `color: ${textOn(rampColour(map.bytes[query * map.keys + from] / 255))}`;
      const place = { x: ((from + to) / 2) * cell, y: (query + 0.5) * cell, "font-size": 0.6 * cell };
      return [
        ...(to - from > 1 ? [svgElement("rect", { class: "run", ...frame(from, to, query, cell) })] : []),
        ...(mark ? [svgElement("text", { class: "mark", style, ...place }, mark)] : []),
      ];
    }),
  );
}

function frame(from, to, query, cell) {
  return { x: from * cell + 1, y: query * cell + 1, width: (to - from) * cell - 2, height: cell - 2 };
}

/* Frames of the row and the column, and strong ones of the cell or of all segments of its group. */
function cursorFrames(map, cell, { query, key }) {
  const segments = groupAt(map, query, key);
  const framed = segments.length ? segments : [{ from: key, to: key + 1 }];
  return [
    svgElement("rect", { x: 0, y: query * cell, width: map.keys * cell, height: cell }),
    svgElement("rect", { x: key * cell, y: 0, width: cell, height: map.queries * cell }),
    ...framed.map(({ from, to }) => svgElement("rect", { class: "strong", ...frame(from, to, query, cell) })),
  ];
}

function moveCursor(map, event, point) {
  const step = ARROWS[event.key];
  if (step) {
    event.preventDefault();
    const cursor = maps.cursor ?? { query: 0, key: -step[1] };
    const within = (value, size) => Math.max(0, Math.min(size - 1, value));
    point({ query: within(cursor.query + step[0], map.queries), key: within(cursor.key + step[1], map.keys) });
  }
}
