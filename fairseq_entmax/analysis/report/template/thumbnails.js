/* Every head of a layer, or of all layers, as small maps. */

async function thumbnailCards(sentence, models, attention, layer, choose) {
  const width = widestLayer(attention);
  const isOneLayer = layer !== "";
  const made = element("div", { class: isOneLayer ? "cards one-layer" : "cards" });
  made.style.setProperty("--card", `${3 + 2.7 * width}rem`);
  for (const model of models) {
    const layers = layersOf(model, attention).filter(
      (entry) => !isOneLayer || entry.layer === Number(layer),
    );
    const drawings = [];
    const table = headGrid({
      label: `${report.models[model].name}, ${attention}: maps of every head`,
      layers,
      width,
      fill: (cell, head) => drawings.push(thumbnail(cell, head, sentence)),
      choose,
    });
    table.classList.add("thumbnails");
    await Promise.all(drawings);
    const title = element("h3", {}, ...breakable(report.models[model].name));
    made.append(element("div", { class: "card" }, title, element("div", { class: "scroll" }, table)));
  }
  return made;
}

async function thumbnail(cell, head, sentence) {
  const roles = head.roles.length ? `: ${head.roles.join(", ")}` : "";
  cell.setAttribute("aria-label", `layer ${head.layer}, head ${head.head}${roles}`);
  cell.setAttribute("aria-selected", String(head === selection.head));
  const map = await headMap(sentence, head);
  if (map) {
    cell.append(pixels(map));
  }
}
