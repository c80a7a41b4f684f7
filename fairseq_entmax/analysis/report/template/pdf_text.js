/* Text in a PDF: in Helvetica, which every reader has, as far as its signs are of Latin-1 and a few
   more; what is not, such as Greek and Chinese, is painted by the browser, as a mask. */

const FONTS = ["Helvetica", "Helvetica-Bold"];
/* Widths of the signs from space to ~, in thousandths of the font's size. */
const WIDTHS = [
  "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584",
  "278 333 474 556 556 889 722 238 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 333 333 584 584 584 611 975 722 722 722 722 667 611 778 722 278 556 722 611 833 722 778 667 778 722 667 611 722 667 944 667 667 611 333 278 333 584 556 333 556 611 556 611 556 333 611 611 278 278 556 278 889 611 611 611 611 389 556 333 611 556 778 556 556 500 389 280 389 584",
].map((text) => text.split(" ").map(Number));
/* Signs beyond those, with their code and width; letters with an accent are as wide as without. */
const SIGNS = {
  "…": [133, 1000], "‘": [145, 222], "’": [146, 222], "“": [147, 333], "”": [148, 333], "•": [149, 350],
  "–": [150, 556], "—": [151, 1000], "€": [128, 556], "−": [150, 556], "¡": [161, 333], "§": [167, 556], "«": [171, 556],
  "°": [176, 400], "±": [177, 584], "·": [183, 278], "»": [187, 556], "¿": [191, 611], "×": [215, 584],
  "÷": [247, 584], "Æ": [198, 1000], "Ø": [216, 778], "ß": [223, 611], "æ": [230, 889], "ø": [248, 611],
};
const MASK_DOTS = 10; // a pixel of the SVG
const MASK_EDGE = 0.4; // of the font's size, around a painted text

function drawText(made, node, style) {
  if (!isPainted(style.fill)) {
    return;
  }
  useAlpha(made, style);
  made.ops.push(`${colourOps(style.fill)} rg`);
  const lines = node.querySelector("tspan") ? [...node.querySelectorAll("tspan")] : [node];
  let y = 0;
  for (const line of lines) {
    y += line === node ? 0 : number(line, "dy");
    drawTextLine(made, line.textContent, y, style);
  }
}

/* One line, of parts that Helvetica has and of parts that the browser paints. */
function drawTextLine(made, text, y, style) {
  const size = Number.parseFloat(style["font-size"]);
  const isBold = style["font-weight"] === "bold" || Number(style["font-weight"]) >= 600;
  const parts = textParts(text, isBold, size);
  const width = parts.reduce((sum, part) => sum + part.width, 0);
  let x = -width * ({ middle: 0.5, end: 1 }[style["text-anchor"]] ?? 0);
  for (const part of parts) {
    if (part.codes) {
      const hex = part.codes.map((code) => code.toString(16).padStart(2, "0")).join("");
      made.ops.push(`BT /F${Number(isBold)} ${digits(size)} Tf 1 0 0 -1 ${digits(x, y)} Tm <${hex}> Tj ET`);
    } else {
      drawMask(made, part, x, y, size);
    }
    x += part.width;
  }
}

/* Runs of signs with a code, and runs without. */
function textParts(text, isBold, size) {
  const parts = [];
  for (const sign of text.normalize("NFC")) {
    const known = helvetica(sign, isBold);
    const last = parts.at(-1);
    if (!last || Boolean(known) !== Boolean(last.codes)) {
      parts.push({ text: "", width: 0, codes: known ? [] : null });
    }
    const part = parts.at(-1);
    part.text += sign;
    if (known) {
      part.codes.push(known[0]);
      part.width += (known[1] * size) / 1000;
    } else {
      part.font = `${isBold ? "bold " : ""}${size}px Helvetica, Arial, sans-serif`;
      part.width = textWidth(part.text, part.font);
    }
  }
  return parts;
}

/* The code and width of a sign; none where the font lacks it. */
function helvetica(sign, isBold) {
  const code = sign.codePointAt(0);
  const widths = WIDTHS[Number(isBold)];
  if (code >= 32 && code <= 126) {
    return [code, widths[code - 32]];
  }
  if (Object.hasOwn(SIGNS, sign)) {
    return SIGNS[sign];
  }
  const base = sign.normalize("NFD").charCodeAt(0);
  return code >= 192 && code <= 255 && base <= 126 ? [code, widths[base - 32]] : null;
}

function textWidth(text, font) {
  const context = element("canvas").getContext("2d");
  context.font = font;
  return context.measureText(text).width;
}

/* Text as a picture of one bit a dot, filled with the colour of the moment. */
function drawMask(made, part, x, y, size) {
  const edge = MASK_EDGE * size;
  const [width, height] = [part.width + 2 * edge, size + 2 * edge].map((side) => Math.ceil(side * MASK_DOTS));
  const canvas = element("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.scale(MASK_DOTS, MASK_DOTS);
  context.font = part.font;
  context.textBaseline = "alphabetic";
  context.fillText(part.text, edge, size + edge / 2);
  const { data } = context.getImageData(0, 0, width, height);
  const perRow = Math.ceil(width / 8);
  const bits = new Uint8Array(perRow * height).fill(255);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      if (data[4 * (row * width + column) + 3] > 127) {
        bits[row * perRow + (column >> 3)] &= ~(128 >> (column & 7));
      }
    }
  }
  const mask = made.masks.push({ width, height, bits }) - 1;
  const [w, h] = [width / MASK_DOTS, height / MASK_DOTS];
  made.ops.push(`q ${digits(w, 0, 0, -h, x - edge, y - size - edge / 2 + h)} cm /M${mask} Do Q`);
}
