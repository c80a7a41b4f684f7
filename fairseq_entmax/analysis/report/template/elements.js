/* Making elements. Text from the data only ever becomes text, never markup. */

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") {
      made.className = value;
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/* A name that may be broken behind signs such as "+", for titles. */
function breakable(name) {
  const parts = name.split(/(?<=[-_+:=./,;])/);
  return parts.flatMap((part, place) => (place ? [element("wbr"), part] : [part]));
}

/* Text whose options, such as --scores, are not broken over lines. */
function withOptions(text) {
  return text.split(/(--[a-z][a-z-]*)/).map((part) => (part.startsWith("--") ? element("span", { class: "option" }, part) : part));
}

function byId(id) {
  return document.getElementById(id);
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, text]) => element("option", { value }, text)),
  );
  if (chosen !== undefined) {
    select.value = String(chosen);
  }
}

function modelOptions() {
  return report.models.map((model, number) => [number, model.name]);
}

function attentionOptions() {
  return attentions.map((attention) => [attention, attention]);
}

/* A list of terms: pairs of a name and a value, or of a name and an element. */
function definitions(pairs) {
  const list = element("dl", { class: "numbers" });
  for (const [term, value] of pairs) {
    list.append(element("div", {}, element("dt", {}, term), element("dd", {}, value)));
  }
  return list;
}

/* A bar of colours with what its ends mean; extra swatches stand behind it. Without ends
   everything has one colour, and there is no scale to explain. */
function legend(place, ends, swatches) {
  const bar = element("span", { class: "ramp", "aria-hidden": "true" });
  bar.style.background = rampGradient();
  const scale = ends
    ? element("span", { class: "scale" }, ends[0], bar, ends[1])
    : "the same number everywhere";
  const others = swatches.map(([kind, text]) =>
    element("span", { class: "scale" }, element("span", { class: `swatch ${kind}` }), text),
  );
  place.replaceChildren(scale, ...others);
}

function showTooltip(text, x, y) {
  const tooltip = byId("tooltip");
  tooltip.textContent = text;
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(x + 14, document.documentElement.clientWidth - width - 6);
  const below = y + 18 + height < innerHeight;
  tooltip.style.left = `${Math.max(6, left)}px`;
  tooltip.style.top = `${below ? y + 18 : y - height - 12}px`;
}

function hideTooltip() {
  byId("tooltip").hidden = true;
}

/* Scrolls a box, never the page, so that the element in it is seen. */
function scrollInBox(box, target) {
  const outer = box.getBoundingClientRect();
  const inner = target.getBoundingClientRect();
  const hidden = inner.top < outer.top + 48 || inner.bottom > outer.bottom;
  if (hidden) {
    box.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 2;
  }
}
