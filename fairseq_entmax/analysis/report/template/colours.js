/* One colour scale for numbers, steadily darker, so that colour-blind readers still see the order.
   Larger numbers always stand out more from the page: the large end is light on a dark page, and
   dark on a light page. */

const HEAT = ["#f0e490", "#97c47e", "#4c9f8c", "#2a7a94", "#23558f", "#1d2f72"];
const systemTheme = matchMedia("(prefers-color-scheme: dark)");

/* The colours from the smallest number to the largest. */
function heatColours() {
  return systemTheme.matches ? [...HEAT].reverse() : HEAT;
}

/* The three channels of the colour at `place`, from 0, the smallest number, to 1, the largest. */
function rampColour(place) {
  const colours = heatColours().map((hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16)));
  const along = place * (colours.length - 1);
  const low = Math.min(Math.floor(along), colours.length - 2);
  return colours[low].map((value, i) => Math.round(value + (along - low) * (colours[low + 1][i] - value)));
}

/* Black or white, whichever is more legible: by relative luminance as WCAG 2 defines it, where 0.179
   has the same contrast to both. */
function textOn(colour) {
  const [red, green, blue] = colour.map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/* A bar with the colours from above 0 to 1, and swatches of cells that have no such colour. */
function weightLegend(place, swatches = []) {
  const bar = element("span", { class: "ramp", "aria-hidden": "true" });
  bar.style.background = `linear-gradient(to right, ${heatColours().join(", ")})`;
  const others = swatches.map(([kind, text]) =>
    element("span", { class: "scale" }, element("span", { class: `swatch ${kind}` }), text),
  );
  place.replaceChildren(element("span", { class: "scale" }, "above 0", bar, "1"), ...others);
}
