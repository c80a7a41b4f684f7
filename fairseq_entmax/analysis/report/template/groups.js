/* Groups of keys to which a query gives exactly the same weight, as fusedmax and oscarmax do.

   Neighbours of one group are a segment, drawn as one box. The segments of a group that has
   several carry the same mark. */

/* Corners of each mark, and how far it is turned, in eighths; without corners a disc. Those
   behind the last are the same once more, hollow. */
const GROUP_MARKS = [[0, 0], [3, 0], [4, 1], [4, 0], [3, 4]];

/* The segments of a row, left to right, each with its keys, `to` not included. */
function segmentsOf(map, query) {
  const segments = [];
  for (let key = 0; key < map.keys; key += 1) {
    const place = query * map.keys + key;
    const group = map.groups[place];
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
    segments.filter((segment) => segment.group === group).forEach((segment) => Object.assign(segment, { mark }));
  });
  return segments;
}

/* The segments of the group that a key is in; none for a key alone. */
function groupAt(map, query, key) {
  const group = map.groups?.[query * map.keys + key];
  return group ? segmentsOf(map, query).filter((segment) => segment.group === group) : [];
}

/* What a group is in words: “▁la ▁tierra … ▁que”, 3 keys together 0.600 ± 0.006; null for a key alone. */
function groupText(map, query, key) {
  const segments = groupAt(map, query, key);
  if (!segments.length) {
    return null;
  }
  const words = segments.map(({ from, to }) => map.columns.slice(from, to).join(" ")).join(" … ");
  const count = segments.reduce((sum, { from, to }) => sum + to - from, 0);
  const joint = timesWeight(map.bytes[query * map.keys + key], count);
  return `“${words}”, ${count} keys together ${joint}`;
}

/* Borders around segments and none inside, strong ones around those of several keys; marks. */
function paintSegments(context, map, left, top, cell) {
  const ink = isDark() ? "#fff" : "#000";
  context.save();
  context.lineWidth = 1;
  for (let query = 0; query < map.queries; query += 1) {
    for (const { from, to, mark } of segmentsOf(map, query)) {
      const [x, y, width] = [left + from * cell, top + query * cell, (to - from) * cell];
      const isJoined = to - from > 1;
      const colour = textOn(rampColour(map.bytes[query * map.keys + from] / 255));
      // Two lines, of which one stands out from the page, and one from the box
      for (const [line, inset] of isJoined ? [[ink, 0.5], [colour, 1.5]] : [[colour, 0.5]]) {
        context.strokeStyle = line;
        context.globalAlpha = isJoined ? 1 : 0.25;
        context.strokeRect(x + inset, y + inset, width - 2 * inset, cell - 2 * inset);
      }
      context.globalAlpha = 1;
      if (mark !== null) {
        paintMark(context, mark, x + width / 2, y + cell / 2, 0.24 * cell, colour);
      }
    }
  }
  context.restore();
}

function paintMark(context, mark, x, y, radius, colour) {
  const [corners, turn] = GROUP_MARKS[mark % GROUP_MARKS.length];
  const isHollow = Math.floor(mark / GROUP_MARKS.length) % 2;
  context.save();
  context.beginPath();
  if (corners === 0) {
    context.arc(x, y, 0.85 * radius, 0, 2 * Math.PI);
  }
  for (let corner = 0; corner < corners; corner += 1) {
    const angle = (2 * corner / corners + turn / 4 - 0.5) * Math.PI;
    context.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
  }
  context.closePath();
  context.lineWidth = 1.25;
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context[isHollow ? "stroke" : "fill"]();
  context.restore();
}
