/* A PDF of one page from an SVG that Vega wrote: shapes stay shapes, and text stays text. */

/* The bytes of a PDF, one point for each pixel of the SVG. */
async function pdfOf(svgText) {
  const svg = new DOMParser().parseFromString(svgText, "image/svg+xml").documentElement;
  const [width, height] = ["width", "height"].map((side) => Number(svg.getAttribute(side)));
  const made = { ops: [`1 0 0 -1 0 ${height} cm`], alphas: new Map(), shadings: [], masks: [], svg };
  drawNode(made, svg, { "fill": "black", "stroke": "none", "font-size": "10px" });
  return pdfFile(made, width, height);
}

/* Attributes that children take over from what they are in. */
const INHERITED = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "stroke-opacity", "font-size", "font-weight", "text-anchor",
];

function drawNode(made, node, above) {
  if (node.getAttribute("display") === "none" || node.tagName === "defs") {
    return;
  }
  const style = { ...above };
  for (const name of INHERITED.filter((one) => node.hasAttribute(one))) {
    style[name] = node.getAttribute(name);
  }
  // As Vega uses it, on shapes alone
  style.opacity = Number(node.getAttribute("opacity") ?? 1) * (above.opacity ?? 1);
  const { ops } = made;
  ops.push("q", ...matrices(node.getAttribute("transform") ?? ""));
  const draw = { path: drawPath, rect: drawRect, line: drawLine, text: drawText }[node.tagName];
  if (draw) {
    draw(made, node, style);
  } else {
    [...node.children].forEach((child) => drawNode(made, child, style));
  }
  ops.push("Q");
}

function matrices(transform) {
  return [...transform.matchAll(/(\w+)\(([^)]*)\)/g)].map(([, kind, text]) => {
    const [a, b = kind === "scale" ? a : 0] = text.split(/[ ,]+/).map(Number);
    if (kind === "rotate") {
      const [cos, sin] = [Math.cos((a * Math.PI) / 180), Math.sin((a * Math.PI) / 180)];
      return `${digits(cos, sin, -sin, cos, 0, 0)} cm`;
    }
    return kind === "scale" ? `${digits(a, 0, 0, b, 0, 0)} cm` : `${digits(1, 0, 0, 1, a, b)} cm`;
  });
}

function digits(...numbers) {
  return numbers.map((number) => String(Number(number.toFixed(4)))).join(" ");
}

function number(node, name) {
  return Number(node.getAttribute(name) ?? 0);
}

function drawRect(made, node, style) {
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => number(node, name));
  paint(made, [`${digits(x, y, width, height)} re`], style, [x, y, width, height]);
}

function drawLine(made, node, style) {
  const [x, y, toX, toY] = ["x1", "y1", "x2", "y2"].map((name) => number(node, name));
  paint(made, [`${digits(x, y)} m`, `${digits(toX, toY)} l`], { ...style, fill: "none" });
}

function drawPath(made, node, style) {
  const { ops, box } = pathOps(node.getAttribute("d") ?? "");
  if (ops.length) {
    paint(made, ops, style, box);
  }
}

/* Fills and strokes a path; `box` is what a gradient runs over. */
function paint(made, path, style, box) {
  const gradient = /url\(#(.+)\)/.exec(style.fill)?.[1];
  if (gradient && box) {
    const [x, y, width, height] = box;
    const shading = made.shadings.push(shadingOf(made.svg, gradient)) - 1;
    made.ops.push("q", ...path, "W n", `${digits(width, 0, 0, height, x, y)} cm`, `/S${shading} sh`, "Q");
  }
  const isFilled = !gradient && isPainted(style.fill);
  const lineWidth = Number.parseFloat(style["stroke-width"] ?? "1");
  const isStroked = isPainted(style.stroke) && lineWidth > 0;
  if (!isFilled && !isStroked) {
    return;
  }
  useAlpha(made, style);
  if (isFilled) {
    made.ops.push(`${colourOps(style.fill)} rg`);
  }
  if (isStroked) {
    const dashes = style["stroke-dasharray"];
    const list = dashes && dashes !== "none" ? dashes.split(/[ ,]+/).map(Number) : [];
    made.ops.push(`${colourOps(style.stroke)} RG`, `${digits(lineWidth)} w`, `[${digits(...list)}] 0 d`);
  }
  made.ops.push(...path, isFilled && isStroked ? "B" : isFilled ? "f" : "S");
}

function isPainted(colour) {
  return colour !== "none" && colour !== "transparent";
}

function useAlpha(made, style) {
  const [fill, stroke] = ["fill-opacity", "stroke-opacity"].map((name) => Number(style[name] ?? 1) * style.opacity);
  const key = `/ca ${digits(fill)} /CA ${digits(stroke)}`;
  if (!made.alphas.has(key)) {
    made.alphas.set(key, `A${made.alphas.size}`);
  }
  made.ops.push(`/${made.alphas.get(key)} gs`);
}

/* Any colour that CSS knows, as three numbers from 0 to 1. */
function colourOps(colour) {
  const context = element("canvas").getContext("2d");
  context.fillStyle = colour;
  return digits(...channels(context.fillStyle).map((value) => value / 255));
}

/* Commands of a path as Vega writes them, with the box they are in. */
function pathOps(text) {
  const ops = [];
  const points = [];
  let [x, y, startX, startY] = [0, 0, 0, 0];
  const go = (toX, toY, op) => {
    [x, y] = [toX, toY];
    points.push([x, y]);
    ops.push(`${digits(x, y)} ${op}`);
  };
  const curve = (...to) => {
    points.push([to[4], to[5]]);
    [x, y] = [to[4], to[5]];
    ops.push(`${digits(...to)} c`);
  };
  for (const [, letter, list] of text.matchAll(/([A-Za-z])([^A-Za-z]*)/g)) {
    const kind = letter.toUpperCase();
    const isRelative = letter !== kind;
    const numbers = (list.match(/[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?/gi) ?? []).map(Number);
    const size = { M: 2, L: 2, H: 1, V: 1, C: 6, Q: 4, A: 7, Z: 0 }[kind];
    if (size === 0) {
      ops.push("h");
      [x, y] = [startX, startY];
    }
    for (let at = 0; size && at + size <= numbers.length; at += size) {
      const [dx, dy] = isRelative ? [x, y] : [0, 0];
      const part = numbers.slice(at, at + size);
      const moved = part.map((value, place) => value + (place % 2 ? dy : dx));
      if (kind === "M" || kind === "L") {
        go(...moved, kind === "M" && at === 0 ? "m" : "l");
        [startX, startY] = kind === "M" && at === 0 ? [x, y] : [startX, startY];
      } else if (kind === "H") {
        go(part[0] + dx, y, "l");
      } else if (kind === "V") {
        go(x, part[0] + dy, "l");
      } else if (kind === "C") {
        curve(...moved);
      } else if (kind === "Q") {
        const [a, b, toX, toY] = moved;
        curve(x + (2 / 3) * (a - x), y + (2 / 3) * (b - y), toX + (2 / 3) * (a - toX), toY + (2 / 3) * (b - toY), toX, toY);
      } else {
        arcCurves(x, y, part, part[5] + dx, part[6] + dy).forEach((one) => curve(...one));
      }
    }
  }
  const [xs, ys] = [0, 1].map((side) => points.map((point) => point[side]));
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { ops, box: [left, top, Math.max(...xs) - left, Math.max(...ys) - top] };
}

/* An arc of a circle, as d3 writes them, by curves of a quarter of a circle at most. */
function arcCurves(x, y, [radius, , , isLarge, isClockwise], toX, toY) {
  const [dx, dy] = [(toX - x) / 2, (toY - y) / 2];
  const half = Math.hypot(dx, dy);
  if (half === 0 || radius === 0) {
    return [];
  }
  const r = Math.max(radius, half);
  const away = Math.sqrt(Math.max(0, r * r - half * half)) / half;
  const side = isLarge === isClockwise ? -1 : 1;
  const [midX, midY] = [x + dx - side * away * dy * 1, y + dy + side * away * dx];
  const from = Math.atan2(y - midY, x - midX);
  let sweep = Math.atan2(toY - midY, toX - midX) - from;
  if (isClockwise && sweep <= 0) {
    sweep += 2 * Math.PI;
  } else if (!isClockwise && sweep >= 0) {
    sweep -= 2 * Math.PI;
  }
  const count = Math.max(1, Math.ceil(Math.abs(sweep) / (Math.PI / 2) - 1e-9));
  const step = sweep / count;
  const reach = (4 / 3) * Math.tan(step / 4);
  return Array.from({ length: count }, (_, place) => {
    const [a, b] = [from + place * step, from + (place + 1) * step];
    const at = (angle, along) => [
      midX + r * (Math.cos(angle) - along * Math.sin(angle)),
      midY + r * (Math.sin(angle) + along * Math.cos(angle)),
    ];
    return [...at(a, reach), ...at(b, -reach), ...at(b, 0)];
  });
}

/* A linear gradient over the unit square. */
function shadingOf(svg, id) {
  const gradient = svg.querySelector(`[id="${id}"]`);
  const ends = ["x1", "y1", "x2", "y2"].map((name) => number(gradient, name));
  const stops = [...gradient.querySelectorAll("stop")].map((stop) => [number(stop, "offset"), colourOps(stop.getAttribute("stop-color"))]);
  const parts = stops.slice(1).map(([, colour], place) => `<< /FunctionType 2 /Domain [0 1] /C0 [${stops[place][1]}] /C1 [${colour}] /N 1 >>`);
  const bounds = digits(...stops.slice(1, -1).map(([offset]) => offset));
  const encode = parts.map(() => "0 1").join(" ");
  const all = `<< /FunctionType 3 /Domain [0 1] /Functions [${parts.join(" ")}] /Bounds [${bounds}] /Encode [${encode}] >>`;
  return `<< /ShadingType 2 /ColorSpace /DeviceRGB /Coords [${digits(...ends)}] /Extend [true true] /Function ${all} >>`;
}

async function pdfFile(made, width, height) {
  const { alphas, shadings, masks } = made;
  const first = 5 + FONTS.length; // number of the first shading
  const named = (letter, start, list) => list.map((_, place) => `/${letter}${place} ${start + place} 0 R`).join(" ");
  const states = [...alphas].map(([what, name]) => `/${name} << ${what} >>`).join(" ");
  const resources = [
    `/Font << ${named("F", 5, FONTS)} >>`,
    `/ExtGState << ${states} >>`,
    `/Shading << ${named("S", first, shadings)} >>`,
    `/XObject << ${named("M", first + shadings.length, masks)} >>`,
  ].join(" ");
  const bytes = (text) => new TextEncoder().encode(text);
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${digits(width, height)}] /Contents 4 0 R /Resources << ${resources} >> >>`,
    await pdfStream("", bytes(made.ops.join("\n"))),
    ...FONTS.map((name) => `<< /Type /Font /Subtype /Type1 /BaseFont /${name} /Encoding /WinAnsiEncoding >>`),
    ...shadings,
    ...(await Promise.all(
      masks.map(({ width: dots, height: lines, bits }) =>
        pdfStream(`/Type /XObject /Subtype /Image /Width ${dots} /Height ${lines} /ImageMask true /BitsPerComponent 1 `, bits),
      ),
    )),
  ];
  const parts = [bytes("%PDF-1.4\n%\u00e9\u00e9\n")];
  let length = parts[0].length;
  const offsets = [];
  const add = (part) => {
    parts.push(part);
    length += part.length;
  };
  objects.forEach((object, place) => {
    offsets.push(length);
    add(bytes(`${place + 1} 0 obj\n`));
    [object].flat().forEach((part) => add(typeof part === "string" ? bytes(part) : part));
    add(bytes("\nendobj\n"));
  });
  const start = length;
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  const size = objects.length + 1;
  add(bytes(`xref\n0 ${size}\n0000000000 65535 f \n${table}trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`));
  return new Blob(parts);
}

async function pdfStream(entries, content) {
  const stream = new Blob([content]).stream().pipeThrough(new CompressionStream("deflate"));
  const packed = new Uint8Array(await new Response(stream).arrayBuffer());
  return [`<< ${entries}/Filter /FlateDecode /Length ${packed.length} >>\nstream\n`, packed, "\nendstream"];
}
