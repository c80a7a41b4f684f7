/* The overview: layers by heads, coloured by one measure. */

const overview = { measure: report.measure, view: null };

function setUpOverview() {
  const select = byId("measure");
  const options = (measures) => measures.map(({ name, title }) => [name, title]);
  fillSelect(select, options(loneMeasures));
  // Measures of a group come below the others, under the group's name
  for (const group of new Set(report.measures.map((measure) => measure.group).filter(Boolean))) {
    const place = element("optgroup", { label: group });
    fillSelect(place, options(report.measures.filter((measure) => measure.group === group)));
    select.append(place);
  }
  select.value = overview.measure;
  select.addEventListener("change", () => {
    overview.measure = select.value;
    showOverview();
  });
  onSelect((head) => overview.view?.signal("chosen", head.key).runAsync());
  return showOverview();
}

async function showOverview() {
  const measure = report.measures.find(({ name }) => name === overview.measure);
  if (!measure) {
    return;
  }
  byId("measure-meaning").textContent = `${measure.title}: ${measure.meaning}.`;
  const values = heads.map((head) => head.values[measure.name]).filter((value) => value !== null);
  const [low, high] = measure.range ?? [Math.min(...values), Math.max(...values)];
  const spec = structuredClone(report.charts.overview);
  const { color } = spec.spec.layer[0].encoding;
  color.title = measure.title;
  color.scale.domain = low < high ? [low, high] : [low - 1, low + 1];
  color.legend = low < high ? { ...color.legend, values: [low, high] } : null;
  spec.params.find(({ name }) => name === "chosen").value = selection.head?.key ?? "";
  // As in figures_grids.py
  const digits = Math.max(Math.abs(low), Math.abs(high)) >= 0.1 ? 2 : 3;
  const box = byId("grids");
  box.dataset.measure = "";
  const view = await drawChart(box, spec, overviewRows(measure, digits));
  if (view) {
    overview.view = view;
    view.addEventListener("click", (_, item) => selectHead(headByKey.get(item?.datum?.key)));
    // A head may have been chosen meanwhile
    view.signal("chosen", selection.head?.key ?? "").runAsync();
    box.dataset.measure = measure.name;
  }
}

/* A row for each place of the grid; places without a head have no text. */
function overviewRows(measure, digits) {
  const layers = [...new Set(heads.map((head) => head.layer))].sort((a, b) => a - b);
  const numbers = [...new Set(heads.map((head) => head.head))];
  const shown = attentions.filter((attention) => heads.some((head) => head.attention === attention));
  return report.models.flatMap(({ name }, model) =>
    shown.flatMap((attention) =>
      layers.flatMap((layer) =>
        numbers.map((number) => {
          const place = { model: name, attention, layer, head: number };
          const head = findHead(model, attention, layer, number);
          if (!head) {
            return { ...place, value: null, text: "", copies: false };
          }
          const value = head.values[measure.name];
          const mark = head.significant.includes(measure.name) ? "*" : "";
          const { key, copies } = head;
          return { ...place, key, copies, value, text: decimal(value, digits) + mark, roles: head.roles.join("; ") || NO_ROLE };
        }),
      ),
    ),
  );
}
