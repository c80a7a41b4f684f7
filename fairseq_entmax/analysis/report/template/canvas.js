/* Painting weights. Exact zeros have no colour of the scale: they are grey and hatched. */

const ZERO_COLOURS = { light: [[233, 233, 230], "#b9b9b4"], dark: [[44, 46, 51], "#5d616b"] };
const HATCH = 6;

function zeroColours() {
  return ZERO_COLOURS[isDark() ? "dark" : "light"];
}

/* One pixel a weight; what lies in the future stays transparent. */
function pixels(map) {
  const canvas = element("canvas");
  canvas.width = map.keys;
  canvas.height = map.queries;
  const context = canvas.getContext("2d");
  const image = context.createImageData(map.keys, map.queries);
  const colours = Array.from({ length: 256 }, (_, byte) =>
    byte ? rampColour(byte / 255) : zeroColours()[0],
  );
  map.bytes.forEach((byte, index) => {
    const isHidden = isFuture(map, Math.floor(index / map.keys), index % map.keys);
    image.data.set([...colours[byte], isHidden ? 0 : 255], 4 * index);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function hatchPattern(context) {
  const tile = element("canvas");
  tile.width = HATCH;
  tile.height = HATCH;
  const lines = tile.getContext("2d");
  lines.strokeStyle = zeroColours()[1];
  lines.lineWidth = 1;
  for (const shift of [-HATCH, 0, HATCH]) {
    lines.moveTo(shift, HATCH);
    lines.lineTo(shift + HATCH, 0);
  }
  lines.stroke();
  return context.createPattern(tile, "repeat");
}

/* A canvas that is sharp on screens with several dots a pixel; drawn on in CSS pixels. */
function sharpContext(canvas, width, height) {
  const dots = devicePixelRatio || 1;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(dots, dots);
  return context;
}

/* The cells of a map at a place of a canvas, `cell` pixels each. */
function paintCells(context, map, left, top, cell) {
  const [width, height] = [map.keys * cell, map.queries * cell];
  context.imageSmoothingEnabled = false;
  context.drawImage(pixels(map), left, top, width, height);
  context.beginPath();
  map.bytes.forEach((byte, index) => {
    const [query, key] = [Math.floor(index / map.keys), index % map.keys];
    if (byte === 0 && !isFuture(map, query, key)) {
      context.rect(left + key * cell, top + query * cell, cell, cell);
    }
  });
  context.fillStyle = hatchPattern(context);
  context.fill();
}

/* As much of a token as fits, with the rest told by an ellipsis. */
function fitted(context, token, width) {
  if (context.measureText(token).width <= width) {
    return token;
  }
  let kept = [...token];
  while (kept.length > 1 && context.measureText(`${kept.join("")}…`).width > width) {
    kept = kept.slice(0, -1);
  }
  return `${kept.join("")}…`;
}
