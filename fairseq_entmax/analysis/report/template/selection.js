/* The one selected head, and who wants to know of it. */

const selection = { head: null, listeners: [] };

function onSelect(listener) {
  selection.listeners.push(listener);
}

function selectHead(head) {
  if (!head) {
    return;
  }
  selection.head = head;
  selection.listeners.forEach((listener) => listener(head));
}

/* The head that looks at one place most surely: its map is the easiest to read first. */
function firstSelection() {
  const measure = ["confidence", "relevance"].find(measureNamed);
  if (!measure) {
    return heads[0];
  }
  const surest = (best, head) =>
    (head.values[measure] ?? -1) > (best.values[measure] ?? -1) ? head : best;
  return heads.length ? heads.reduce(surest) : undefined;
}

function setUpSelectedBar() {
  const line = byId("selected-line");
  onSelect((head) => {
    const roles = head.roles.length ? ` – ${head.roles.join("; ")}` : "";
    line.replaceChildren(element("strong", {}, headTitle(head)), roles);
  });
}
